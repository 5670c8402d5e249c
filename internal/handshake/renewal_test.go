package handshake

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"
)

func TestOnlyTheChainOfACertificateDecidesWhenItsConnectionEnds(t *testing.T) {
	certificate := func(subject, issuer string, hours int) *x509.Certificate {
		return &x509.Certificate{RawSubject: []byte(subject), RawIssuer: []byte(issuer), NotAfter: time.Unix(0, 0).Add(time.Duration(hours) * time.Hour)}
	}
	for _, c := range []struct {
		name  string
		shown []*x509.Certificate
		want  string // hours
	}{
		{"none", nil, "[]"},
		{"alone", []*x509.Certificate{certificate("w", "ca", 9)}, "[9]"},
		{"with its authority", []*x509.Certificate{certificate("w", "ca", 9), certificate("ca", "root", 7), certificate("root", "root", 8)}, "[9 7 8]"},
		{"with another one", []*x509.Certificate{certificate("w", "ca", 9), certificate("old", "old", 1), certificate("ca", "root", 7)}, "[9 7]"},
		{"with two of a name", []*x509.Certificate{certificate("w", "ca", 9), certificate("ca", "old", 1), certificate("ca", "root", 7)}, "[9 7]"},
		{"in a circle", []*x509.Certificate{certificate("w", "a", 9), certificate("a", "b", 7), certificate("b", "a", 6)}, "[9 7 6]"},
	} {
		hours := []int{}
		for _, one := range chain(c.shown) {
			hours = append(hours, int(one.NotAfter.Sub(time.Unix(0, 0)).Hours()))
		}
		if got := fmt.Sprint(hours); got != c.want {
			t.Errorf("%s: the chain ends after %s hours, want %s", c.name, got, c.want)
		}
	}
}
