package worker

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker/health"
)

// fileService is one item of a file of services.
type fileService struct {
	Name      string             `yaml:"name"`
	Address   string             `yaml:"address"`
	Protocol  advertise.Protocol `yaml:"protocol"`
	Weight    *int               `yaml:"weight"`
	Slots     int                `yaml:"slots"`
	Version   string             `yaml:"version"`
	Tags      []string           `yaml:"tags"`
	Relays    int                `yaml:"relays"`
	Selection string             `yaml:"selection"`
	Check     *fileCheck         `yaml:"check"`
}

type fileCheck struct {
	Kind     health.Kind    `yaml:"kind"`
	Address  string         `yaml:"address"`
	Path     string         `yaml:"path"`
	Host     string         `yaml:"host"`
	Service  string         `yaml:"service"`
	Interval time.Duration  `yaml:"interval"`
	Timeout  time.Duration  `yaml:"timeout"`
	Rise     int            `yaml:"rise"`
	Fall     int            `yaml:"fall"`
	Grace    *time.Duration `yaml:"grace"`
}

func (f fileService) service() (Service, error) {
	s := Service{Source: FromFile, Service: advertise.Service{
		Name: f.Name, Address: f.Address, Protocol: f.Protocol, Slots: f.Slots,
		Version: f.Version, Tags: f.Tags, Relays: f.Relays, Selection: f.Selection,
	}}
	if f.Weight != nil {
		if s.Weight = *f.Weight; s.Weight == 0 { // which elsewhere stands for the default
			return s, fmt.Errorf("service %q: weight 0: want 1 to %d", f.Name, advertise.MaxWeight)
		}
	}
	if c := f.Check; c != nil {
		if c.Kind == "" { // without it a check that is written would be none
			return s, fmt.Errorf("service %q: check: the kind is missing: want tcp, http or grpc", f.Name)
		}
		s.Check = health.Check{
			Kind: c.Kind, Address: c.Address, Path: c.Path, Host: c.Host, Service: c.Service,
			Interval: c.Interval, Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall,
		}
		if c.Grace != nil {
			if s.Check.StartGrace = *c.Grace; *c.Grace == 0 {
				s.Check.StartGrace = -1 // as it is written: none
			}
		}
	}
	return s.Normalize()
}

// normalize returns the services of all items, or everything that is wrong.
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

// ParseServices reads a file of services, whose format is described in
// docs/reference/services-file.md; path is for messages. The error joins
// everything that is wrong, each with its line. An empty file is refused: it is
// more probably half written than meant.
func ParseServices(path string, body []byte) ([]Service, error) {
	var items []fileService
	set := settings.New("services file", "RINGWAY")
	settings.Section(set, &items, settings.Spec{Name: "services", Required: true}, func(items []fileService) error {
		_, err := normalize(items)
		return err
	})
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
		if p.Setting != "config" { // else it is about the file as a whole
			where += fmt.Sprintf(": key %q", p.Setting)
		}
		errs = append(errs, fmt.Errorf("%s: %s", where, p.Reason))
	}
	return nil, errors.Join(errs...)
}

// servicesFile is the file of services. It is for one goroutine at a time.
type servicesFile struct {
	path string // empty: there is none
	seen string // fingerprint of what was last read, right or wrong
}

// read reads the services; none without a file.
func (f *servicesFile) read() ([]Service, error) {
	if f.path == "" {
		return nil, nil
	}
	body, err := os.ReadFile(f.path)
	f.seen = fingerprint(body, err)
	if err != nil {
		return nil, fmt.Errorf("read the services: %w: is --services-file right? A file for no services yet says `services: []`", err)
	}
	return ParseServices(f.path, body)
}

// changed reports whether the file is another than what was last read. Its
// contents are compared, since mounted files change by links and may keep their
// times.
func (f *servicesFile) changed() bool {
	return f.path != "" && fingerprint(os.ReadFile(f.path)) != f.seen
}

func fingerprint(body []byte, err error) string { return fmt.Sprint(xxhash.Sum64(body), err) }
