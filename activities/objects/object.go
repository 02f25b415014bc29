// Package objects edits kcp's own objects as they stand in etcd: JSON in, JSON out.
// It is pure. Fields it does not know are kept as they are, so that a newer kcp's
// objects pass through unharmed.
package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
)

type object map[string]any

// parse keeps numbers as they are spelled: a float64 would change large ones.
func parse(value []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var content object
	if err := decoder.Decode(&content); err != nil {
		return nil, fmt.Errorf("parse JSON object: %w", err)
	}
	if content == nil {
		return nil, fmt.Errorf("parse JSON object: it is null")
	}
	return content, nil
}

// encode spells the object as kcp's JSON serializer does, newline at the end included.
func (o object) encode() ([]byte, error) {
	var buffer bytes.Buffer
	if err := json.NewEncoder(&buffer).Encode(o); err != nil {
		return nil, fmt.Errorf("encode JSON object: %w", err)
	}
	return buffer.Bytes(), nil
}

// at gives the object below the named fields, and makes it where it is absent.
func (o object) at(fields ...string) object {
	current := o
	for _, field := range fields {
		next, isObject := current[field].(map[string]any)
		if !isObject {
			next = map[string]any{}
			current[field] = next
		}
		current = next
	}
	return current
}

// look gives the object below the named fields, nil where it is absent.
func (o object) look(fields ...string) object {
	current := o
	for _, field := range fields {
		current, _ = current[field].(map[string]any)
	}
	return current
}

func (o object) text(field string) string {
	text, _ := o[field].(string)
	return text
}
