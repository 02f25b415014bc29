package dump

import (
	"fmt"
	"strconv"
	"strings"

	migrationv1alpha1 "github.com/kcp-dev/sdk/apis/migration/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// LogicalClusterDump is kcp's request and answer in one, spelled here because the released SDK (0.32) has no pages yet:
// kcp's main has had them since kcp-dev/kcp#4244.
type LogicalClusterDump struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec,omitempty"`
	Status Status `json:"status,omitempty"`
}

// Spec says which page is wanted.
type Spec struct {
	// Continue is the Status.Continue of the page before; empty for the first.
	Continue string `json:"continue,omitempty"`
	// Limit bounds the entries of a page, MaxBytes their values; 0 leaves it to the server.
	Limit    int64 `json:"limit,omitempty"`
	MaxBytes int64 `json:"maxBytes,omitempty"`
}

// Status is a page.
type Status struct {
	Entries []migrationv1alpha1.EtcdEntry `json:"entries,omitempty"`
	// Continue leads to the next page; empty on the last.
	Continue string `json:"continue,omitempty"`
}

// position is how far a dump has come: behind an entry, at a revision.
type position struct {
	revision int64
	// after is nil at the beginning.
	after *activities.Ref
}

// layout spells keys as a dump does, below the storage prefix.
var layout = keyspace.NewLayout("")

func relativeKey(logicalCluster string, ref activities.Ref) string {
	key := layout.Key(keyspace.Entry{Family: ref.Family, LogicalCluster: logicalCluster, Suffix: ref.Suffix})
	return strings.TrimPrefix(key, layout.Prefix())
}

// token is what a client gives back to go on: <revision>:<key of the last entry that it was sent>.
func (p position) token(logicalCluster string) string {
	return strconv.FormatInt(p.revision, 10) + ":" + relativeKey(logicalCluster, *p.after)
}

func parseToken(logicalCluster, token string) (position, error) {
	revision, key, _ := strings.Cut(token, ":")
	number, err := strconv.ParseInt(revision, 10, 64)
	if err != nil || number <= 0 {
		return position{}, fmt.Errorf("continue token %q has no revision", token)
	}
	entry, err := layout.Parse(layout.Prefix() + key)
	if err != nil || entry.LogicalCluster != logicalCluster {
		return position{}, fmt.Errorf("continue token %q is not of logical cluster %s", token, logicalCluster)
	}
	return position{revision: number, after: &activities.Ref{Family: entry.Family, Suffix: entry.Suffix}}, nil
}
