package objects

import (
	"fmt"
	"time"
)

// RenewBoundCRD gives a bound CRD a new creationTimestamp: kcp deletes one that no binding on the shard uses as
// soon as it is 30 minutes old, and no binding uses a copied one yet.
func RenewBoundCRD(value []byte, createdAt time.Time) ([]byte, error) {
	content, err := parse(value)
	if err != nil {
		return nil, fmt.Errorf("parse bound CRD: %w", err)
	}
	if kind := content.text("kind"); kind != "CustomResourceDefinition" {
		return nil, fmt.Errorf("parse bound CRD: kind is %q", kind)
	}
	content.at("metadata")["creationTimestamp"] = createdAt.UTC().Format(time.RFC3339)
	return content.encode()
}

// IsEstablished reports whether a CRD's value says that it is served.
func IsEstablished(value []byte) (bool, error) {
	content, err := parse(value)
	if err != nil {
		return false, fmt.Errorf("parse CRD: %w", err)
	}
	conditions, _ := content.look("status")["conditions"].([]any)
	for _, condition := range conditions {
		fields, _ := condition.(map[string]any)
		if object(fields).text("type") == "Established" {
			return object(fields).text("status") == "True", nil
		}
	}
	return false, nil
}

// BoundSchemas gives the UIDs of the schemas that an APIBinding's value says it has bound.
func BoundSchemas(value []byte) ([]string, error) {
	content, err := parse(value)
	if err != nil {
		return nil, fmt.Errorf("parse APIBinding: %w", err)
	}
	bound, _ := content.look("status")["boundResources"].([]any)
	var uids []string
	for _, resource := range bound {
		fields, _ := resource.(map[string]any)
		if uid := object(fields).look("schema").text("UID"); uid != "" {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}
