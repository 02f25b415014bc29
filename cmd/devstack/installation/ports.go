package installation

import (
	"fmt"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// Ports are those that people and scripts need to know.
type Ports struct {
	Temporal int
	UI       int
	// FrontDoors has one port for each.
	FrontDoors []int
}

// FixedPorts are those that Temporal's and kcp's users expect; front doors beyond the
// first are given free ones.
func FixedPorts(frontDoors int) (Ports, error) {
	further, err := ports.FreeSeveral(frontDoors - 1)
	if err != nil {
		return Ports{}, err
	}
	fixed := Ports{Temporal: 7233, UI: 8233, FrontDoors: append([]int{6443}, further...)}
	for what, port := range map[string]int{"Temporal": fixed.Temporal, "the web UI": fixed.UI, "the front door": fixed.FrontDoors[0]} {
		if err := ports.Check(port); err != nil {
			return Ports{}, fmt.Errorf("reserve port %d for %s: %w; stop what uses it, or give --free-ports", port, what, err)
		}
	}
	return fixed, nil
}

// FreePorts lets any number of installations run beside each other.
func FreePorts(frontDoors int) (Ports, error) {
	free, err := ports.FreeSeveral(2 + frontDoors)
	if err != nil {
		return Ports{}, err
	}
	return Ports{Temporal: free[0], UI: free[1], FrontDoors: free[2:]}, nil
}
