package activities

import (
	"cmp"
	"fmt"
)

// FirstProtocol is what workers speak that do not tell, in a report or a request.
const FirstProtocol = 1

// Protocols are the versions of the transfer protocol that a worker serves. It asks other workers in the newest.
type Protocols struct {
	Oldest int `json:"oldest,omitempty"`
	Newest int `json:"newest,omitempty"`
}

// TooOldFor is whether a worker that asks in this version knows more than one that serves these.
func (p Protocols) TooOldFor(asked int) bool {
	return cmp.Or(asked, FirstProtocol) > cmp.Or(p.Newest, FirstProtocol)
}

// TooNewFor is whether one that serves these has forgotten how a worker asks in this version.
func (p Protocols) TooNewFor(asked int) bool {
	return cmp.Or(asked, FirstProtocol) < p.Oldest
}

// String reads "transfer protocol 1" or "transfer protocols 1 to 2".
func (p Protocols) String() string {
	oldest, newest := cmp.Or(p.Oldest, FirstProtocol), cmp.Or(p.Newest, FirstProtocol)
	if oldest == newest {
		return fmt.Sprintf("transfer protocol %d", newest)
	}
	return fmt.Sprintf("transfer protocols %d to %d", oldest, newest)
}
