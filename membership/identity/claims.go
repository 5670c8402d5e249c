package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// scheme is the scheme of all URIs with claims, unless there is a template. Other URIs are ignored,
// so that a certificate can also contain, for example, a SPIFFE id.
const scheme = "ringway"

// The kinds of claim: the host part of a URI.
const (
	kindRole        = "role"
	kindCluster     = "cluster"
	kindEnvironment = "env"
	kindDatacenter  = "dc"
	kindNode        = "node"
	kindService     = "service"
)

const (
	// The limits of CheckName.
	maxName   = 63
	nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	// maxURIs limits the work, and the size of the error, that one hostile certificate can cause.
	// An honest certificate has five, and at most maxServiceNames of services.
	maxURIs = 32
)

// Claims are the properties of a certificate's holder. It is a plain value.
type Claims struct {
	// Role is the holder's role.
	Role Role `json:"role"`
	// Cluster and Environment are those of the holder.
	Cluster     string `json:"cluster"`
	Environment string `json:"environment"`
	// Datacenter may be empty: the certificate then does not restrict it.
	Datacenter string `json:"datacenter,omitempty"`
	// Node is the stable id of the member.
	Node string `json:"node"`
	// Services are those that a worker may offer; in another role they have no effect.
	Services string `json:"services,omitempty"`
}

// holder returns the claims that a renewed certificate cannot change without a restart.
func (c Claims) holder() Claims {
	c.Services = ""
	return c
}

// claimsError lists all problems of the claims of one certificate.
type claimsError struct {
	// Problems are in the order of the URIs, followed by what is missing. Never empty.
	Problems []string
}

// Error lists all problems in one line.
func (e *claimsError) Error() string {
	return "the certificate does not identify its holder: " + strings.Join(e.Problems, "; ") +
		" (wanted are the URI names ringway://role/…, ringway://cluster/…, ringway://env/…, ringway://node/… once each, ringway://dc/… at most once, and any number of ringway://service/…)"
}

// FromCertificate reads the claims in the names ringway://… of a certificate. It does not check the
// signature or the validity, and knows no template: for a peer use [Source.FromCertificate]. The
// error is a [claimsError] with all problems.
func FromCertificate(cert *x509.Certificate) (Claims, error) {
	if cert == nil {
		return Claims{}, errors.New("no certificate to read claims from")
	}
	return fromURIs(cert.URIs)
}

// fromURIs reads the claims from the URI names of a certificate. Exactly one role, cluster,
// environment and node and at most one datacenter are required. An unknown kind is refused
// as well, because a misspelt datacenter must not count as none.
func fromURIs(uris []*url.URL) (Claims, error) {
	var problems, services []string
	found := make(map[string]string, 5)
	ours := 0
	for _, u := range uris {
		if u == nil || !strings.EqualFold(u.Scheme, scheme) {
			continue
		}
		kind, value, err := splitClaim(u)
		if kind == kindService && err == nil {
			if services = append(services, value); len(services) > maxServiceNames {
				problems = append(problems, fmt.Sprintf("more than %d services", maxServiceNames))
				break
			}
			continue
		}
		if ours++; ours > maxURIs {
			problems = append(problems, fmt.Sprintf("more than %d %s:// names", maxURIs, scheme))
			break
		}
		if err != nil {
			problems = append(problems, err.Error())
			if kind != "" && found[kind] == "" {
				found[kind] = "malformed" // so that it is not reported as missing as well
			}
			continue
		}
		if found[kind] != "" {
			problems = append(problems, fmt.Sprintf("more than one %s", kind))
			continue
		}
		found[kind] = value
	}
	if len(found) == 0 && slices.ContainsFunc(uris, func(u *url.URL) bool { return u != nil && u.Scheme == "spiffe" }) {
		problems = append(problems, "its SPIFFE ID counts only with an identity template (--identity-template, of a command --admin-identity-template)")
	}
	for _, kind := range []string{kindRole, kindCluster, kindEnvironment, kindNode} {
		if found[kind] == "" {
			problems = append(problems, "no "+kind)
		}
	}
	if len(problems) > 0 {
		return Claims{}, &claimsError{Problems: problems}
	}
	names, _ := ParseServiceNames(services...) // cannot fail: each was checked, and their number too
	return Claims{
		Role: Role(found[kindRole]), Cluster: found[kindCluster], Environment: found[kindEnvironment],
		Datacenter: found[kindDatacenter], Node: found[kindNode], Services: names,
	}, nil
}

// splitClaim splits ringway://kind/value. If it returns an error, kind is set if at least
// the kind was valid.
func splitClaim(u *url.URL) (kind, value string, err error) {
	value = strings.TrimPrefix(u.Path, "/")
	// The URI must be exactly in canonical form: without port, user, query, fragment, escapes or
	// a second path element that another reader could interpret differently.
	canonical := claimURI(u.Host, value)
	wrong := func(why string) error { return fmt.Errorf("%.120q: %s", u.String(), why) }
	switch u.Host {
	case kindRole, kindCluster, kindEnvironment, kindDatacenter, kindNode, kindService:
	default:
		return "", "", wrong("unknown kind of name; known are role, cluster, env, dc, node and service")
	}
	if u.String() != canonical.String() || u.Path != canonical.Path {
		return u.Host, "", wrong("malformed; the form is " + scheme + "://" + u.Host + "/VALUE")
	}
	if u.Host == kindService {
		if checkServiceName(value) != nil {
			return u.Host, "", wrong("allowed are " + serviceNameRule)
		}
		return u.Host, value, nil
	}
	if CheckName(value) != nil {
		return u.Host, "", wrong("allowed are " + NameRule)
	}
	if u.Host == kindRole && !Role(value).valid() {
		return u.Host, "", wrong("unknown role; known are " + joinRoles(roles[:]))
	}
	return u.Host, value, nil
}

// NameRule is the rule of [CheckName] as text.
const NameRule = "1 to 63 letters, digits, '.', '_' and '-'"

// CheckName checks the name of a cluster, an environment, a member, a datacenter or a region.
// Names come from other members and are shown in logs and tables; they are input of hashes and
// parts of certificates.
func CheckName(name string) error {
	if name == "" || len(name) > maxName || strings.Trim(name, nameChars) != "" {
		return fmt.Errorf("%.80q: allowed are %s", name, NameRule)
	}
	return nil
}

// validate reports all problems that would prevent a certificate with these claims from
// being accepted.
func (c Claims) validate() error {
	var errs []error
	if !c.Role.valid() {
		errs = append(errs, fmt.Errorf("role %.80q: allowed are %s", c.Role, joinRoles(roles[:])))
	}
	for _, f := range []struct {
		name, value string
		optional    bool
	}{
		{"cluster", c.Cluster, false}, {"environment", c.Environment, false},
		{"datacenter", c.Datacenter, true}, {"node", c.Node, false},
	} {
		if f.optional && f.value == "" {
			continue
		}
		if err := CheckName(f.value); err != nil {
			errs = append(errs, fmt.Errorf("%s %w", f.name, err))
		}
	}
	if again, err := ParseServiceNames(serviceNamesOf(c.Services)...); err != nil {
		errs = append(errs, fmt.Errorf("service %w", err))
	} else if again != c.Services {
		errs = append(errs, fmt.Errorf("services %.80q: use ParseServiceNames, which sorts them", c.Services))
	}
	return errors.Join(errs...)
}

// claimURI returns ringway://kind/value. The raw path keeps '*', which package url would escape.
func claimURI(kind, value string) *url.URL {
	return &url.URL{Scheme: scheme, Host: kind, Path: "/" + value, RawPath: "/" + value}
}

// uris returns the URI names of a certificate with these claims. Call validate first.
func (c Claims) uris() []*url.URL {
	var uris []*url.URL
	for _, p := range [...][2]string{
		{kindRole, string(c.Role)}, {kindCluster, c.Cluster}, {kindEnvironment, c.Environment},
		{kindDatacenter, c.Datacenter}, {kindNode, c.Node},
	} {
		if p[1] != "" {
			uris = append(uris, claimURI(p[0], p[1]))
		}
	}
	for _, name := range serviceNamesOf(c.Services) {
		uris = append(uris, claimURI(kindService, name))
	}
	return uris
}

// String returns, for example: relay relay-7 of prod/eu, datacenter fra.
func (c Claims) String() string {
	s := fmt.Sprintf("%s %s of %s/%s", c.Role, c.Node, c.Cluster, c.Environment)
	if c.Datacenter != "" {
		s += ", datacenter " + c.Datacenter
	}
	return s
}

// Role is the role of a member of the fleet or of another holder of a certificate: a client is
// never a gossip member.
type Role string

// The roles.
const (
	RoleClient Role = "client"
	RoleGate   Role = "gate"
	RoleRelay  Role = "relay"
	RoleWorker Role = "worker"
	// RoleObserver sees the cluster and offers, serves and answers nothing: a program that calls
	// workers itself.
	RoleObserver Role = "observer"
)

// The order is that of the matrix in the documentation.
var roles = [...]Role{RoleClient, RoleGate, RoleRelay, RoleWorker, RoleObserver}

// Roles returns every role, in the order of the connection matrix.
func Roles() []Role { return slices.Clone(roles[:]) }

// valid reports whether r is one of the roles.
func (r Role) valid() bool { return r.index() >= 0 }

// Member reports whether r may take part in gossip: every role but client.
func (r Role) Member() bool { return r.valid() && r != RoleClient }

// Relays reports whether r accepts requests of clients and passes them on: relay and gate.
func (r Role) Relays() bool { return r == RoleRelay || r == RoleGate }

func (r Role) index() int { return slices.Index(roles[:], r) }

func joinRoles(rs []Role) string {
	if len(rs) == 0 {
		return "none"
	}
	names := make([]string, len(rs))
	for i, r := range rs {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
