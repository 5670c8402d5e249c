package session

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// A relay would refuse the record: it knows the certificate of the session, and the other one may have
// ended.
func TestASessionBeginsWhenItsCertificateHasSignedTheRecord(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := identity.Files{Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Authorities: filepath.Join(dir, "ca")}
	issue := func() {
		cert, key, err := authority.Issue(identity.Claims{Role: identity.RoleWorker, Cluster: "c", Environment: "e", Node: "w1"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{files.Certificate: cert, files.Key: key, files.Authorities: authority.CertificatePEM()} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue()
	source, err := identity.NewSource(files, identity.SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(Config{Member: membership.Config{ID: "w1", Cluster: "c", Environment: "e", Identity: source}, Seeds: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is dialled fails
	c.lastRow = []string{"r1.invalid:1"}
	publish := func() {
		c.PublishRecord(slices.Concat([]byte("record"), c.Sign(membership.StatementRecord, []byte("record"))))
	}
	dialled := func() bool {
		clear(c.tries)
		c.step(ctx)
		c.running.Wait()
		return len(c.tries) > 0 // each dial that has ended leaves an entry
	}
	if !dialled() {
		t.Error("without a record no session begins")
	}
	publish()
	if !dialled() {
		t.Error("with its record no session begins")
	}
	issue()
	if replaced, err := source.Reload(); !replaced || err != nil {
		t.Fatal(replaced, err)
	}
	if dialled() {
		t.Error("a session begins whose relay would get a record of the certificate before")
	}
	for len(c.wake) > 0 { // of the dials before
		<-c.wake
	}
	publish()
	select {
	case <-c.wake:
	default:
		t.Error("the record does not end the wait")
	}
	if !dialled() {
		t.Error("with the new record no session begins")
	}
}
