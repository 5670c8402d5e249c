package identity

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Other issuers name a workload with one SPIFFE ID instead of the names ringway://…. A template
// specifies where in its path the claims are:
// spiffe://shop.test/{environment}/{cluster}/{role}/{node}.
//
// An ID is compared as text, exactly as it is in the certificate: package url would make one of two
// spellings, and what two readers read differently is a way in.

// spiffeScheme begins every SPIFFE ID and every template.
const spiffeScheme = "spiffe://"

// maxTrustDomain is the limit of the SPIFFE specification.
const maxTrustDomain = 255

// placeholders are the claims that a template must name, each once.
var placeholders = [...]string{"{environment}", "{cluster}", "{role}", "{node}"}

// TemplateRule is the rule of [SourceConfig.Template] as text.
const TemplateRule = "spiffe://TRUST-DOMAIN/ and a path whose elements are fixed text or {environment}, {cluster}, {role} and {node}, each once, " +
	"such as spiffe://shop.test/{environment}/{cluster}/{role}/{node}"

// template is where the claims are in a SPIFFE ID. The nil template reads the names ringway://… of
// [FromCertificate].
type template struct {
	text     string
	domain   string
	elements []string // of the path: fixed text, or one of the placeholders
}

// CheckTemplate reports why [SourceConfig.Template] would be refused.
func CheckTemplate(text string) error {
	_, err := parseTemplate(text)
	return err
}

// refusedTemplate adds subject and remedy to the error of parseTemplate.
func refusedTemplate(text string, err error) error {
	return fmt.Errorf("identity template %.300q: %w: it must be %s", text, err, TemplateRule)
}

// parseTemplate parses a template; the empty one is nil. A placeholder is a whole element of the
// path: with two in one element, or text next to one, an ID could be read in more than one way.
func parseTemplate(text string) (*template, error) {
	if text == "" {
		return nil, nil
	}
	refuse := func(format string, args ...any) (*template, error) {
		return nil, fmt.Errorf(format, args...)
	}
	rest, found := strings.CutPrefix(text, spiffeScheme)
	if !found {
		return refuse("it does not begin with %s", spiffeScheme)
	}
	domain, path, found := strings.Cut(rest, "/")
	if len(domain) > maxTrustDomain || domain == "" || strings.Trim(domain, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return refuse("its trust domain %.80q is not 1 to %d small letters, digits, '.', '-' and '_'", domain, maxTrustDomain)
	}
	if !found {
		return refuse("it has no path")
	}
	t := &template{text: text, domain: domain, elements: strings.Split(path, "/")}
	if len(t.elements) > maxURIs {
		return refuse("its path has more than %d elements", maxURIs)
	}
	for i, element := range t.elements {
		switch {
		case !strings.ContainsAny(element, "{}"):
			if err := checkElement(element); err != nil {
				return refuse("element %d of its path: %v", i+1, err)
			}
		case !slices.Contains(placeholders[:], element):
			return refuse("element %d of its path, %.80q, is neither fixed text nor exactly one known placeholder", i+1, element)
		case slices.Contains(t.elements[:i], element):
			return refuse("%s is in it twice", element)
		}
	}
	for _, p := range placeholders {
		if !slices.Contains(t.elements, p) {
			return refuse("%s is missing", p)
		}
	}
	return t, nil
}

// checkElement checks an element of a path: it is a name, and neither . nor .., which have a
// meaning in paths and which no SPIFFE ID has.
func checkElement(element string) error {
	if element == "." || element == ".." {
		return fmt.Errorf("%q has a meaning in paths: no SPIFFE ID has it", element)
	}
	return CheckName(element)
}

// claims reads the claims of a certificate.
func (t *template) claims(cert *x509.Certificate) (Claims, error) {
	if t == nil {
		return FromCertificate(cert)
	}
	if cert == nil {
		return Claims{}, errors.New("no certificate to read claims from")
	}
	claims, err := t.only(cert)
	if err != nil {
		return Claims{}, fmt.Errorf("the certificate does not identify its holder: %w (wanted is one URI name, as in the identity template %s: issue it so, or correct --identity-template)", err, t.text)
	}
	return claims, nil
}

// only reads the only URI name. A certificate with several, such as names ringway://… in addition, is
// refused: it would name its holder twice, and members without a template would read the other.
func (t *template) only(cert *x509.Certificate) (Claims, error) {
	names, err := uriNames(cert)
	switch {
	case err != nil:
		return Claims{}, err
	case len(names) == 0:
		return Claims{}, errors.New("no URI name")
	case len(names) > 1:
		return Claims{}, fmt.Errorf("%d URI names: a SPIFFE certificate has one", len(names))
	}
	return t.match(names[0])
}

// match reads the claims from a SPIFFE ID.
func (t *template) match(id string) (Claims, error) {
	refuse := func(format string, args ...any) (Claims, error) {
		return Claims{}, fmt.Errorf("%.200q: %s", id, fmt.Sprintf(format, args...))
	}
	path, found := strings.CutPrefix(id, spiffeScheme+t.domain+"/")
	if !found {
		return refuse("it does not begin with %s%s/", spiffeScheme, t.domain)
	}
	if n := strings.Count(path, "/") + 1; n != len(t.elements) {
		return refuse("its path has %d elements, %d are wanted", n, len(t.elements))
	}
	var c Claims
	for i, value := range strings.Split(path, "/") {
		element := t.elements[i]
		if err := checkElement(value); err != nil {
			return refuse("%s: %v", element, err)
		}
		switch element {
		case "{environment}":
			c.Environment = value
		case "{cluster}":
			c.Cluster = value
		case "{node}":
			c.Node = value
		case "{role}":
			if c.Role = Role(value); !c.Role.valid() {
				return refuse("unknown role %q; known are %s", value, joinRoles(roles[:]))
			}
		default:
			if value != element {
				return refuse("%q is where %q is wanted", value, element)
			}
		}
	}
	return c, nil
}

// subjectAltName is the extension with the names of a certificate, and uriTag its kind of name for a
// URI: RFC 5280, section 4.2.1.6.
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

const uriTag = 6

// uriNames returns the URI names of a certificate as they are in it. Those of package x509 are
// parsed: the case of the scheme and an empty fragment are lost.
func uriNames(cert *x509.Certificate) (names []string, err error) {
	for _, extension := range cert.Extensions {
		if !extension.Id.Equal(subjectAltName) {
			continue
		}
		var all []asn1.RawValue
		if _, err := asn1.Unmarshal(extension.Value, &all); err != nil {
			return nil, fmt.Errorf("its names cannot be read: %w", err)
		}
		for _, one := range all {
			if one.Class == asn1.ClassContextSpecific && one.Tag == uriTag {
				names = append(names, string(one.Bytes))
			}
		}
	}
	return names, nil
}
