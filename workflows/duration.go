package workflows

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that JSON spells as Go does: "60s", "1m30s".
type Duration time.Duration

// String spells the duration as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText makes the duration a JSON string.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("parse duration %q: want a number with a unit, like 60s or 1m30s", text)
	}
	*d = Duration(parsed)
	return nil
}
