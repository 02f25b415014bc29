package workflows

// step is one row of the protocol, in the protocol's order: a move that has reached one has attempted all before it.
type step int

const (
	notStarted step = iota
	preflight
	claimOrigin
	claimDestination
	readyDestination
	gate
	fenceOrigin
	fenceDestination
	copyEntries
	verifyEntries
	commit
	serve
	cleanUpOrigin
	finalizeDestination
)

// String is the step's one name in the status, the result, the web UI and the docs.
func (s step) String() string {
	return [...]string{
		"not started",
		"preflight",
		"claim origin",
		"claim destination",
		"ready destination",
		"gate",
		"fence origin",
		"fence destination",
		"copy",
		"verify",
		"commit",
		"serve",
		"clean up origin",
		"finalize destination",
	}[s]
}
