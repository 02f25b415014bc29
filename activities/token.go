package activities

import (
	"fmt"
	"strconv"
	"strings"
)

// Token is the proof, kept in both etcds, of who may write: "<run id>/<n>".
// The workflow raises n; a later move has another run ID, so no token ever returns.
type Token string

// NewToken gives the first token of a run.
func NewToken(runID string) Token { return Token(runID + "/1") }

// Run is the workflow run the token belongs to.
func (t Token) Run() string {
	run, _, _ := strings.Cut(string(t), "/")
	return run
}

// Number is the token's n, 0 when the token is malformed.
func (t Token) Number() int {
	_, number, _ := strings.Cut(string(t), "/")
	n, err := strconv.ParseUint(number, 10, 31) // leaves room to be raised
	if err != nil {
		return 0
	}
	return int(n)
}

// Next is the token raised by one.
func (t Token) Next() Token { return Token(fmt.Sprintf("%s/%d", t.Run(), t.Number()+1)) }

// TakenBy is the token with which another run goes on from this one: the number tells on how far the move had come.
func (t Token) TakenBy(run string) Token { return Token(fmt.Sprintf("%s/%d", run, t.Number())) }

// SameRun reports whether both tokens belong to one workflow run.
func (t Token) SameRun(other Token) bool { return t.Run() != "" && t.Run() == other.Run() }

// Guard goes with every write: the logical cluster whose claim must hold the token.
type Guard struct {
	LogicalCluster string `json:"logicalCluster"`
	Token          Token  `json:"token"`
}
