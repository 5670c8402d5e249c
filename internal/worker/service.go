package worker

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/worker/health"
	"github.com/ringway/ringway/selection/strategy"
)

// Source is where a service was configured.
type Source string

// The sources of services.
const (
	// FromSettings: --service, its environment variable, or the file of settings.
	FromSettings Source = "flag"
	// FromFile: the file of --services-file.
	FromFile Source = "file"
)

// Service is one service that an agent is told to offer.
type Service struct {
	advertise.Service
	Source Source
	// Check says when the service is healthy; it is offered only then. The zero
	// Check is none: the service is offered at once.
	Check health.Check
}

// Checked reports whether the service has a check.
func (s Service) Checked() bool { return s.Check != health.Check{} }

// Normalize fills in the defaults and reports what cannot work. A check that
// names no address is of the service's own.
func (s Service) Normalize() (Service, error) {
	var err, checkErr error
	s.Service, err = s.Service.Normalize()
	if _, selectionErr := strategy.Parse(s.Selection); selectionErr != nil {
		err = errors.Join(err, fmt.Errorf("service %q: %w", s.Name, selectionErr))
	}
	if s.Checked() {
		s.Check.Address = cmp.Or(s.Check.Address, s.Address)
		if s.Check, checkErr = s.Check.Normalize(); checkErr != nil {
			checkErr = fmt.Errorf("service %q: check: %w", s.Name, checkErr)
		}
	}
	return s, errors.Join(err, checkErr)
}

// normalized normalizes services, or returns everything that is wrong with them.
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

// selectionOfFlag turns a strategy of --service into one that strategy.Parse reads. No
// name of a node has the characters.
var selectionOfFlag = strings.NewReplacer(":", ";", "+", ",")

// ParseService reads what --service takes:
//
//	name=host:port
//	name=host:port;protocol=h2c;weight=20;slots=100;version=v2;tag=gpu;tag=blue
//	name=host:port;relays=5;selection=stable
//	name=host:port;check=http:/healthz;interval=1s;timeout=500ms;rise=2;fall=3;grace=10s
//
//	name=host:port;selection=ordered:preferred=w2+w1
//
// What follows check= is that of [health.ParseCheck]. What follows selection= is that
// of [strategy.Parse] with ':' for ';' and '+' for ',': the others separate options and
// services.
func ParseService(text string) (Service, error) {
	fail := func(format string, args ...any) (Service, error) {
		return Service{}, fmt.Errorf("service %q: %s; write name=host:port, or name=host:port;protocol=h2c;weight=20;check=http:/healthz",
			text, fmt.Sprintf(format, args...))
	}
	head, options, _ := strings.Cut(text, ";")
	name, address, ok := strings.Cut(head, "=")
	if !ok {
		return fail("no '=' between name and address")
	}
	s := Service{Source: FromSettings}
	s.Name, s.Address = strings.TrimSpace(name), strings.TrimSpace(address)
	var check string
	var checkOptions []string
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
			if s.Weight, err = strconv.Atoi(value); err == nil && s.Weight == 0 { // which elsewhere stands for the default
				return fail("weight 0: want 1 to %d", advertise.MaxWeight)
			}
		case "slots":
			s.Slots, err = strconv.Atoi(value)
		case "version":
			s.Version = value
		case "tag":
			s.Tags = append(s.Tags, value)
		case "relays":
			s.Relays, err = strconv.Atoi(value)
		case "selection":
			if s.Selection = selectionOfFlag.Replace(value); value == "" {
				return fail("selection is empty: want one of %s", strings.Join(strategy.Names(), ", "))
			}
		case "check":
			if check = value; value == "" {
				return fail("check is empty: want tcp, http:/path or grpc:name")
			}
		case "host", "interval", "timeout", "rise", "fall", "grace":
			checkOptions = append(checkOptions, option)
		default:
			return fail("unknown option %q, allowed are protocol, weight, slots, version, tag, relays, selection, check, host, interval, timeout, rise, fall, grace", key)
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
		return fail("%s belongs to a check, and there is none: add check=tcp, check=http:/path or check=grpc:name", checkOptions[0])
	}
	s, err := s.Normalize()
	if err != nil {
		return fail("%v", err)
	}
	return s, nil
}

// overhead is more than a record has besides its services: id, epoch, sequence,
// signature.
const overhead = 2 * advertise.MaxNodeIDBytes

// checkTogether judges services that are to be offered at once, each of them
// normalized. The error joins everything that is wrong.
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
