package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// markSecrets puts a Secret into every tenant whose value must be found nowhere but in the etcds.
func (b *bench) markSecrets(ctx context.Context) error {
	b.marker = rand.Text()
	for path := range tenants {
		tenant, err := b.Tenant(string(path))
		if err != nil {
			return err
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "marked"}, StringData: map[string]string{"value": b.marker}, Data: map[string][]byte{"value": []byte(b.marker)}}
		if _, err := tenant.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("mark %s: %w", path, err)
		}
	}
	return nil
}

// checkSecrecy looks for the marked value in Temporal's files and in everybody's logs, as it is and in base64.
func (b *bench) checkSecrecy(outcome *outcome) error {
	forms := spellings(b.marker)
	return filepath.WalkDir(b.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !b.mustKeep(path) {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // SQLite's own files come and go
		}
		for _, form := range forms {
			if bytes.Contains(content, form) {
				outcome.violate("7: a Secret's value is in %s", filepath.Base(path))
				return nil
			}
		}
		return err
	})
}

// mustKeep is whether a file is to be free of values: those of the etcds are not.
func (b *bench) mustKeep(path string) bool {
	return strings.HasSuffix(path, ".log") || strings.HasPrefix(path, filepath.Dir(b.temporalFile()))
}

// spellings gives a text as it is and as it may stand in base64, wherever it begins there.
func spellings(text string) [][]byte {
	forms := [][]byte{[]byte(text)}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", offset) + text))
		// The first and the last characters depend on what stands beside.
		forms = append(forms, []byte(encoded[4:len(encoded)-4]))
	}
	return forms
}
