package worker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/internal/worker/health"
)

// Source is the place where a service was configured.
type Source string

// The sources of services.
const (
	// FromSettings: --service, its environment variable, or the file of settings.
	FromSettings Source = "flag"
	// FromFile: the file of --services-file.
	FromFile Source = "file"
)

// Service is one service that an agent should offer.
type Service struct {
	advertise.Service
	Source Source
	// Check defines when the service is healthy; only a healthy service is offered. The
	// zero Check is none: the service is offered immediately.
	Check health.Check
	// ServerName is what the certificate of a service with h2 must be for. Empty: the host of
	// Address.
	ServerName string
}

// Checked reports whether the service has a check.
func (s Service) Checked() bool { return s.Check != health.Check{} }

// Normalize sets the defaults and reports invalid values. An address without a host is on
// loopback, and a check without an address uses the address of the service.
func (s Service) Normalize() (Service, error) {
	var err, checkErr error
	if strings.HasPrefix(s.Address, ":") {
		s.Address = "127.0.0.1" + s.Address
	}
	s.Service, err = s.Service.Normalize()
	if _, selectionErr := strategy.Parse(s.Selection); selectionErr != nil {
		err = errors.Join(err, fmt.Errorf("service %q: %w", s.Name, selectionErr))
	}
	policy, policyErr := advertise.ParsePolicy(s.Policy)
	if policyErr != nil {
		err = errors.Join(err, fmt.Errorf("service %q: %w", s.Name, policyErr))
	}
	s.Policy = policy.String()
	if s.Protocol == advertise.TCP && policy.SessionCookie != "" {
		err = errors.Join(err, fmt.Errorf("service %q: session-cookie %q: a TCP session has no cookies: leave it out", s.Name, policy.SessionCookie))
	}
	if s.ServerName != "" {
		nameErr := upstream.CheckServerName(s.ServerName)
		if s.Protocol != advertise.H2 {
			nameErr = errors.New("only a service with protocol h2 has a certificate")
		}
		if nameErr != nil {
			err = errors.Join(err, fmt.Errorf("service %q: server name: %w", s.Name, nameErr))
		}
	}
	if s.Checked() {
		s.Check.Address = cmp.Or(s.Check.Address, s.Address)
		// Another address is a port for checks, which seldom has TLS or HTTP/2 alone.
		same := s.Check.Address == s.Address
		s.Check.HTTP2 = s.Protocol == advertise.H2C && s.Check.Kind == health.HTTP && same
		if s.Check.TLS = s.Protocol == advertise.H2 && same; s.Check.TLS {
			s.Check.ServerName = s.ServerName
		}
		if s.Check, checkErr = s.Check.Normalize(); checkErr != nil {
			checkErr = fmt.Errorf("service %q: check: %w", s.Name, checkErr)
		}
	}
	return s, errors.Join(err, checkErr)
}

// normalized normalizes services. The error joins all problems.
func normalized(services []Service) ([]Service, error) {
	out := make([]Service, len(services))
	var problems []error
	for i, s := range services {
		var err error
		if out[i], err = s.Normalize(); err != nil {
			problems = append(problems, err)
		}
	}
	return out, errors.Join(problems...)
}

// proxyProtocol is the version of the PROXY protocol that relays and sidecars send.
const proxyProtocol = "v2"

// selectionOfFlag turns a strategy of --service into one that strategy.Parse accepts. Names
// of nodes do not contain these characters.
var selectionOfFlag = strings.NewReplacer(":", ";", "+", ",")

var checkHeader = regexp.MustCompile(`(?i)(;\s*header[^=;]*=(?:[^:;]*:)?)[^;]*`)

// RedactService replaces the values of the headers that the check of a service sends, which may be
// credentials, also where the option is not written as it should be.
func RedactService(text string) string { return checkHeader.ReplaceAllString(text, "${1}(redacted)") }

// serviceOptions are the options of --service.
var serviceOptions = []string{"protocol", "weight", "slots", "version", "tag", "relays", "selection", "request-timeout", "attempt-timeout", "progress-timeout", "retry", "session-cookie", "proxy-protocol", "server-name", "check", "host", "method", "header", "expect", "interval", "timeout", "rise", "fall", "grace"}

// ParseService parses a value of --service:
//
//	name=host:port
//	name=:port
//	name=host:port;protocol=h2c;weight=20;slots=100;version=v2;tag=gpu;tag=blue
//	name=host:port;relays=5;selection=stable
//	name=host:port;request-timeout=5s;attempt-timeout=1s;progress-timeout=1m;retry=connect;session-cookie=sid
//	name=host:port;protocol=tcp;proxy-protocol=v2
//	name=host:port;protocol=h2;server-name=billing.example.org
//	name=host:port;check=http:/healthz;interval=1s;timeout=500ms;rise=2;fall=3;grace=10s
//
//	name=host:port;selection=ordered:preferred=w2+w1
//
// [health.ParseCheck] reads the text after check=, and [strategy.Parse] the text after selection=,
// with ':' instead of ';' and '+' instead of ',', because ';' and ',' separate options and services.
func ParseService(text string) (Service, error) {
	fail := func(format string, args ...any) (Service, error) {
		return Service{}, fmt.Errorf("service %q: %s; write name=host:port, or name=host:port;protocol=h2c;weight=20;check=http:/healthz",
			RedactService(text), fmt.Sprintf(format, args...))
	}
	head, options, _ := strings.Cut(text, ";")
	name, address, ok := strings.Cut(head, "=")
	if !ok {
		return fail("no '=' between name and address")
	}
	s := Service{Source: FromSettings}
	s.Name, s.Address = strings.TrimSpace(name), strings.TrimSpace(address)
	var check string
	var checkOptions, policy []string
	for option := range strings.SplitSeq(options, ";") {
		if option == "" {
			continue
		}
		key, value, _ := strings.Cut(option, "=")
		var err error
		switch key {
		case "protocol":
			s.Protocol = advertise.Protocol(value)
		case "weight":
			if s.Weight, err = number(value); err == nil && s.Weight == 0 { // elsewhere 0 means the default
				return fail("weight 0: want 1 to %d", affinity.MaxWeight)
			}
		case "slots":
			s.Slots, err = number(value)
		case "version":
			s.Version = value
		case "tag":
			s.Tags = append(s.Tags, value)
		case "relays":
			s.Relays, err = number(value)
		case "selection":
			if s.Selection = selectionOfFlag.Replace(value); value == "" {
				return fail("selection is empty: want one of %s", strings.Join(strategy.Names(), ", "))
			}
		case "proxy-protocol":
			if s.ProxyProtocol = true; value != proxyProtocol {
				return fail("proxy-protocol %q: want %s", value, proxyProtocol)
			}
		case "server-name":
			if s.ServerName = value; value == "" {
				return fail("server-name is empty: want what the certificate of the service is for")
			}
		case "check":
			if check = value; value == "" {
				return fail("check is empty: want tcp, http:/path or grpc:name")
			}
		case "request-timeout", "attempt-timeout", "progress-timeout", "retry", "session-cookie":
			policy = append(policy, option)
		case "host", "method", "header", "expect", "interval", "timeout", "rise", "fall", "grace":
			checkOptions = append(checkOptions, option)
		default:
			if meant := settings.Nearest(key, serviceOptions); meant != "" {
				return fail("unknown option %q, did you mean %s?", key, meant)
			}
			return fail("unknown option %q, allowed are %s", key, strings.Join(serviceOptions, ", "))
		}
		if err != nil {
			return fail("%s %q is not a number", key, value)
		}
	}
	switch {
	case check != "":
		var err error
		if s.Check, err = health.ParseCheck(strings.Join(append([]string{check}, checkOptions...), ";")); err != nil {
			return fail("%v", err)
		}
	case len(checkOptions) > 0:
		return fail("%s belongs to a check, and there is none: add check=tcp, check=http:/path or check=grpc:name", RedactService(";" + checkOptions[0])[1:])
	}
	s.Policy = strings.Join(policy, ";")
	s, err := s.Normalize()
	if err != nil {
		return fail("%v", err)
	}
	return s, nil
}

func number(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err
}

// overhead is more than the size of a record without its services: id, epoch, sequence,
// signature.
const overhead = 2 * advertise.MaxNodeIDBytes

// checkTogether checks normalized services that are offered together. The error joins all
// problems.
func checkTogether(services []Service) error {
	var problems []error
	record := advertise.Record{NodeID: "this worker"}
	seen := map[string]Source{}
	for _, s := range services {
		if source, twice := seen[s.Name]; twice {
			problems = append(problems, fmt.Errorf("service %q is given twice, by %s and by %s: a worker has one address for each service", s.Name, source, s.Source))
			continue
		}
		seen[s.Name] = s.Source
		record.Services = append(record.Services, s.Service)
	}
	raw, err := record.Encode()
	if err == nil && len(raw) > advertise.MaxRecordBytes-overhead {
		err = fmt.Errorf("they take %d bytes, more than %d: shorten tags, or run a second worker", len(raw), advertise.MaxRecordBytes-overhead)
	}
	if err != nil {
		problems = append(problems, fmt.Errorf("%d services cannot be offered together: %w", len(record.Services), err))
	}
	return errors.Join(problems...)
}

// fileService is one item of a file of services.
type fileService struct {
	Name      string             `yaml:"name"`
	Address   string             `yaml:"address"`
	Protocol  advertise.Protocol `yaml:"protocol"`
	Weight    *int32             `yaml:"weight"`
	Slots     int32              `yaml:"slots"`
	Version   string             `yaml:"version"`
	Tags      []string           `yaml:"tags"`
	Relays    int32              `yaml:"relays"`
	Selection string             `yaml:"selection"`
	Policy    map[string]string  `yaml:"policy"`
	Proxy     string             `yaml:"proxy_protocol"`
	TLSName   string             `yaml:"server_name"`
	Check     *fileCheck         `yaml:"check"`
}

type fileCheck struct {
	Kind     health.Kind       `yaml:"kind"`
	Address  string            `yaml:"address"`
	Path     string            `yaml:"path"`
	Host     string            `yaml:"host"`
	Method   string            `yaml:"method"`
	Headers  map[string]string `yaml:"headers"`
	Expect   string            `yaml:"expect"`
	Service  string            `yaml:"service"`
	Interval time.Duration     `yaml:"interval"`
	Timeout  time.Duration     `yaml:"timeout"`
	Rise     int               `yaml:"rise"`
	Fall     int               `yaml:"fall"`
	Grace    *time.Duration    `yaml:"grace"`
}

func (f fileService) service() (Service, error) {
	s := Service{Source: FromFile, ServerName: f.TLSName, Service: advertise.Service{
		Name: f.Name, Address: f.Address, Protocol: f.Protocol, Slots: f.Slots,
		Version: f.Version, Tags: f.Tags, Relays: f.Relays, Selection: f.Selection, ProxyProtocol: f.Proxy != "",
	}}
	if f.Proxy != "" && f.Proxy != proxyProtocol {
		return s, fmt.Errorf("service %q: proxy_protocol %q: want %s", f.Name, f.Proxy, proxyProtocol)
	}
	if f.Weight != nil {
		if s.Weight = *f.Weight; s.Weight == 0 { // elsewhere 0 means the default
			return s, fmt.Errorf("service %q: weight 0: want 1 to %d", f.Name, affinity.MaxWeight)
		}
	}
	var policy advertise.Policy
	for _, key := range slices.Sorted(maps.Keys(f.Policy)) {
		if err := policy.Set(key, f.Policy[key]); err != nil {
			return s, fmt.Errorf("service %q: policy: %w", f.Name, err)
		}
	}
	s.Policy = policy.String()
	if c := f.Check; c != nil {
		if c.Kind == "" { // without a kind the check would be ignored
			return s, fmt.Errorf("service %q: check: the kind is missing: want tcp, http or grpc", f.Name)
		}
		s.Check = health.Check{
			Kind: c.Kind, Address: c.Address, Path: c.Path, Host: c.Host, Method: c.Method, Expect: c.Expect, Service: c.Service,
			Interval: c.Interval, Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall,
		}
		for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
			if strings.ContainsAny(name+c.Headers[name], "\r\n") {
				return s, fmt.Errorf("service %q: check: header %.80q: a header has no line break", f.Name, name)
			}
			s.Check = s.Check.WithHeader(name, c.Headers[name])
		}
		if c.Grace != nil {
			if s.Check.StartGrace = *c.Grace; *c.Grace == 0 {
				s.Check.StartGrace = -1 // 0 in the file means none
			}
		}
	}
	return s.Normalize()
}

// normalize returns the services of all items. The error joins all problems.
func normalize(items []fileService) ([]Service, error) {
	services := make([]Service, 0, len(items))
	var problems []error
	for i, item := range items {
		s, err := item.service()
		if err != nil {
			problems = append(problems, fmt.Errorf("item %d: %w", i+1, err))
		}
		services = append(services, s)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return services, checkTogether(services)
}

// ServicesFile returns the keys of a file of services.
func ServicesFile() *settings.Set { return declareServices(new([]fileService)) }

func declareServices(items *[]fileService) *settings.Set {
	set := settings.New("services file", "RINGWAY")
	settings.Section(set, items, settings.Spec{Name: "services", Required: true, Usage: "services that the worker offers, in addition to those of its settings"}, func(items []fileService) error {
		_, err := normalize(items)
		return err
	})
	return set
}

// ParseServices parses a file of services, whose format is described in
// docs/reference/services-file.md; path is for messages. The error joins all problems, each
// with its line. An empty file is refused, because it is probably incomplete.
func ParseServices(path string, body []byte) ([]Service, error) {
	var items []fileService
	set := declareServices(&items)
	err := set.Load(settings.Sources{File: path, ReadFile: func(string) ([]byte, error) { return body, nil }})
	var problems settings.Problems
	if !errors.As(err, &problems) {
		if err != nil {
			return nil, err
		}
		return normalize(items)
	}
	var errs []error
	for _, p := range problems {
		where := path
		if p.Origin.Line > 0 {
			where = fmt.Sprintf("%s:%d", path, p.Origin.Line)
		}
		if p.Setting != "config" { // otherwise the problem is that of the whole file
			where += fmt.Sprintf(": key %q", p.Setting)
		}
		errs = append(errs, fmt.Errorf("%s: %s", where, p.Reason))
	}
	return nil, errors.Join(errs...)
}

// servicesFile is the file of services. It is for one goroutine at a time.
type servicesFile struct {
	path string // empty: there is none
	seen string // fingerprint of the content read last, valid or not
}

// read reads the services; it returns none without a file.
func (f *servicesFile) read() ([]Service, error) {
	if f.path == "" {
		return nil, nil
	}
	body, err := os.ReadFile(f.path)
	f.seen = fingerprint(body, err)
	if err != nil {
		return nil, fmt.Errorf("read the services: %w: is --services-file right? A file without services has `services: []`", err)
	}
	return ParseServices(f.path, body)
}

// changed reports whether the file differs from the content read last. It compares the
// contents, because mounted files change by links and may keep their times.
func (f *servicesFile) changed() bool {
	return f.path != "" && fingerprint(os.ReadFile(f.path)) != f.seen
}

func fingerprint(body []byte, err error) string { return fmt.Sprint(xxhash.Sum64(body), err) }
