package workflows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	// defaultMaxTimeAway is eight times what a tenant of 100,000 entries of 1 kB takes by the estimate in plan.go.
	defaultMaxTimeAway = 60 * time.Second
	// mostTimeAway is what the steps between fence and commit are built for: an attempt of one may take as long.
	mostTimeAway = Duration(time.Hour)
	// defaultMaxRevisionLift takes 21 minutes at the activities' 8,000 revisions a second and 500 MB of the
	// destination's etcd before its next compaction.
	defaultMaxRevisionLift = 10_000_000
)

// UnmarshalJSON never fails on an unknown or ill-typed field but keeps the problem for Validate: an input that does
// not decode would fail the workflow task over and over, where a typed failure tells the person who started it.
func (i *Input) UnmarshalJSON(data []byte) error {
	type plain Input
	var fields plain
	problem := decodeStrictly(data, &fields)
	*i = Input(fields)
	i.problem = problem
	return nil
}

func decodeStrictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Validate refuses, with InvalidInput, what no move can start with. It needs no server.
func (i Input) Validate() error {
	var problems []string
	if i.problem != nil {
		problems = append(problems, explain(i.problem, reflect.TypeFor[Input]()))
	}
	if i.LogicalCluster == "" {
		problems = append(problems, "logicalCluster is missing: give a workspace path like root:org:ws or a logical cluster's name")
	}
	if i.DestinationShard == "" {
		problems = append(problems, "destinationShard is missing: give the name of a Shard object")
	}
	switch {
	case i.MaxTimeAway < 0:
		problems = append(problems, "maxTimeAway is negative")
	case i.MaxTimeAway > mostTimeAway:
		problems = append(problems, fmt.Sprintf("maxTimeAway is more than %s", mostTimeAway))
	}
	if i.MaxRevisionLift < 0 {
		problems = append(problems, "maxRevisionLift is negative")
	}
	if len(problems) == 0 {
		return nil
	}
	return activities.Refuse(activities.InvalidInput, "invalid input: %s", strings.Join(problems, "; "))
}

// explain says what is wrong with the JSON without Go's names for it, and what would be right.
func explain(problem error, input reflect.Type) string {
	var illTyped *json.UnmarshalTypeError
	switch {
	case errors.As(problem, &illTyped) && illTyped.Field == "":
		return fmt.Sprintf("it is a JSON %s; give an object with the fields %s", illTyped.Value, strings.Join(fieldNames(input), ", "))
	case errors.As(problem, &illTyped):
		return fmt.Sprintf("field %s is a JSON %s; give %s", illTyped.Field, illTyped.Value, wanted(illTyped.Type))
	case strings.Contains(problem.Error(), "unknown field"):
		return fmt.Sprintf("%s; the fields are %s", strings.TrimPrefix(problem.Error(), "json: "), strings.Join(fieldNames(input), ", "))
	}
	return problem.Error()
}

func wanted(fieldType reflect.Type) string {
	switch {
	case fieldType == reflect.TypeFor[Duration]():
		return `a duration like "60s"`
	case fieldType.Kind() == reflect.Bool:
		return "true or false"
	case fieldType.Kind() == reflect.Int64:
		return "a whole number"
	}
	return "a string"
}

// fieldNames are an input's in JSON.
func fieldNames(input reflect.Type) []string {
	var names []string
	for i := range input.NumField() {
		if name, _, _ := strings.Cut(input.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// withDefaults fills in what was left out.
func (i Input) withDefaults() Input {
	if i.MaxTimeAway == 0 {
		i.MaxTimeAway = Duration(defaultMaxTimeAway)
	}
	if i.MaxRevisionLift == 0 {
		i.MaxRevisionLift = defaultMaxRevisionLift
	}
	return i
}
