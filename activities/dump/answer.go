package dump

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	migrationv1alpha1 "github.com/kcp-dev/sdk/apis/migration/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer sends pages: the first alone, or one after the other.
type answer struct {
	w       http.ResponseWriter
	streams bool
	// dump is the request, and then each page in its turn.
	dump LogicalClusterDump
	// begun is that the client has been told of success.
	begun bool
}

func (a *answer) send(pages iter.Seq2[Status, error]) error {
	// kcp sends the metadata back and nothing else of the request.
	a.dump.TypeMeta = metav1.TypeMeta{APIVersion: migrationv1alpha1.SchemeGroupVersion.String(), Kind: "LogicalClusterDump"}
	a.dump.Spec = Spec{}
	for page, err := range pages {
		if err != nil {
			return err
		}
		a.dump.Status = page
		if err := a.sendPage(); err != nil {
			return err
		}
		if !a.streams {
			return nil
		}
	}
	return nil
}

func (a *answer) sendPage() error {
	control := http.NewResponseController(a.w)
	if err := control.SetWriteDeadline(time.Now().Add(stallLimit)); err != nil {
		return fmt.Errorf("bound the time for a page: %w", err)
	}
	if !a.begun {
		contentType := jsonType
		if a.streams {
			contentType = streamType
		}
		a.w.Header().Set("Content-Type", contentType)
		a.w.WriteHeader(http.StatusCreated)
		a.begun = true
	}
	if err := json.NewEncoder(a.w).Encode(&a.dump); err != nil {
		return fmt.Errorf("send page: %w", err)
	}
	if err := control.Flush(); err != nil {
		return fmt.Errorf("send page: %w", err)
	}
	return nil
}
