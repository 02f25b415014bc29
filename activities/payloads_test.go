package activities_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

var record = flag.Bool("record", false, "record the payloads of activities that have no recording; what was recorded stays")

var recordedPayloads = filepath.Join("testdata", "payloads.json")

// payloads are what one activity is given and gives back, with something in every field.
type payloads struct {
	Input  json.RawMessage `json:"input"`
	Result json.RawMessage `json:"result,omitempty"`
}

// What was recorded is what workers of other versions, and histories, hold. Fields may be added to it, and no more.
func TestPayloads_RecordedOfOlderWorkers_AreReadWhole(t *testing.T) {
	recorded := readPayloads(t)
	for name, method := range activityMethods() {
		t.Run(name, func(t *testing.T) {
			old, found := recorded[name]
			require.True(t, found, "record it: go test ./activities -run Payloads -record")
			requireReadWhole(t, old.Input, input(method))
			if result := result(method); result != nil {
				requireReadWhole(t, old.Result, result)
			}
			delete(recorded, name)
		})
	}
	require.Empty(t, slices.Collect(maps.Keys(recorded)), "activities that older workflows ask for")
}

func readPayloads(t *testing.T) map[string]payloads {
	recorded := map[string]payloads{}
	encoded, err := os.ReadFile(recordedPayloads)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(encoded, &recorded))
	}
	if *record {
		recordMissing(t, recorded)
	}
	return recorded
}

func recordMissing(t *testing.T, recorded map[string]payloads) {
	for name, method := range activityMethods() {
		if _, found := recorded[name]; found {
			continue
		}
		made := payloads{Input: sample(t, input(method))}
		if result := result(method); result != nil {
			made.Result = sample(t, result)
		}
		recorded[name] = made
	}
	encoded, err := json.MarshalIndent(recorded, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(recordedPayloads, append(encoded, '\n'), 0o600))
}

// activityMethods are all that Temporal knows by name; beside them is what a copy leaves in its heartbeats.
func activityMethods() map[string]reflect.Type {
	methods := map[string]reflect.Type{
		"heartbeat of CopyEntries": reflect.TypeFor[func(any, any, activities.CopyProgress)](),
	}
	for _, worker := range []reflect.Type{reflect.TypeFor[*activities.Shard](), reflect.TypeFor[*activities.Fleet]()} {
		for method := range worker.Methods() {
			methods[method.Name] = method.Type
		}
	}
	return methods
}

// input follows the receiver and the context.
func input(method reflect.Type) reflect.Type { return method.In(2) }

// result is nil for an activity that gives an error alone.
func result(method reflect.Type) reflect.Type {
	if method.NumOut() < 2 {
		return nil
	}
	return method.Out(0).Elem()
}

// requireReadWhole has today's worker read a payload with news in it, and looks whether it has all that was recorded.
func requireReadWhole(t *testing.T, recorded json.RawMessage, kind reflect.Type) {
	var want any
	require.NoError(t, json.Unmarshal(recorded, &want))
	newer, err := json.Marshal(withNews(want))
	require.NoError(t, err)
	read := reflect.New(kind)
	require.NoError(t, json.Unmarshal(newer, read.Interface()))
	encoded, err := json.Marshal(read.Interface())
	require.NoError(t, err)
	var got any
	require.NoError(t, json.Unmarshal(encoded, &got))
	requireHolds(t, kind.Name(), want, got)
}

// withNews adds a field that only newer workers know to every object.
func withNews(value any) any {
	switch value := value.(type) {
	case map[string]any:
		news := map[string]any{"newsOfTomorrow": "x"}
		for key, field := range value {
			news[key] = withNews(field)
		}
		return news
	case []any:
		news := make([]any, len(value))
		for i, item := range value {
			news[i] = withNews(item)
		}
		return news
	default:
		return value
	}
}

// requireHolds wants every field of an object, and lets it have more.
func requireHolds(t *testing.T, place string, want, got any) {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for key, field := range want {
			require.Contains(t, object, key, place)
			requireHolds(t, place+"."+key, field, object[key])
		}
	case []any:
		list, _ := got.([]any)
		require.Len(t, list, len(want), place)
		for i, item := range want {
			requireHolds(t, place, item, list[i])
		}
	default:
		require.Equal(t, want, got, place)
	}
}

// sample encodes a value of a type that has something in every field.
func sample(t *testing.T, kind reflect.Type) json.RawMessage {
	value := reflect.New(kind).Elem()
	fill(t, value)
	encoded, err := json.Marshal(value.Interface())
	require.NoError(t, err)
	return encoded
}

func fill(t *testing.T, value reflect.Value) {
	switch value.Interface().(type) {
	case time.Time:
		value.Set(reflect.ValueOf(time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)))
		return
	case keyspace.Family:
		value.Set(reflect.ValueOf(keyspace.Family{Group: "acme.io", Resource: "gizmos", Segment: "customresources"}))
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for _, field := range value.Fields() {
			fill(t, field)
		}
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(t, value.Elem())
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(t, value.Index(0))
	case reflect.Array:
		fill(t, value.Index(0))
	case reflect.String:
		value.SetString("text")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(7)
	case reflect.Uint8:
		value.SetUint(7)
	default:
		require.Fail(t, "unknown kind", "%s", value.Type())
	}
}
