// Package point is what the fault bench and its workers have in common: the places in a move where a fault can strike.
package point

import "fmt"

// Moment is when in an activity.
type Moment string

// The moments of an activity.
const (
	// Before it has done anything.
	Before Moment = "before"
	// During it: its first write has landed, and it has more to do.
	During Moment = "during"
	// After it: its effect has landed, and Temporal does not know yet.
	After Moment = "after"
	// Failed is after an attempt that did not come to its end.
	Failed Moment = "failed"
)

// Point is one moment of one attempt of an activity.
type Point struct {
	Shard    string `json:"shard"`
	Activity string `json:"activity"`
	Moment   Moment `json:"moment"`
	Attempt  int    `json:"attempt"`
	// Workflow is the ID of the move's.
	Workflow string `json:"workflow"`
}

// String gives <shard>/<activity>/<moment>/<attempt>.
func (p Point) String() string {
	return fmt.Sprintf("%s/%s/%s/%d", p.Shard, p.Activity, p.Moment, p.Attempt)
}
