package worker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringway/ringway/advertise"
)

// ParseService reads what --service takes:
//
//	name=host:port
//	name=host:port;protocol=h2c;weight=20;slots=100;version=v2;tag=gpu;tag=blue
func ParseService(text string) (advertise.Service, error) {
	fail := func(format string, args ...any) (advertise.Service, error) {
		return advertise.Service{}, fmt.Errorf("service %q: %s; write name=host:port, or name=host:port;protocol=h2c;weight=20",
			text, fmt.Sprintf(format, args...))
	}
	head, options, _ := strings.Cut(text, ";")
	name, address, ok := strings.Cut(head, "=")
	if !ok {
		return fail("no '=' between name and address")
	}
	s := advertise.Service{Name: strings.TrimSpace(name), Address: strings.TrimSpace(address)}
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
			s.Weight, err = strconv.Atoi(value)
		case "slots":
			s.Slots, err = strconv.Atoi(value)
		case "version":
			s.Version = value
		case "tag":
			s.Tags = append(s.Tags, value)
		default:
			return fail("unknown option %q, allowed are protocol, weight, slots, version, tag", key)
		}
		if err != nil {
			return fail("%s %q is not a number", key, value)
		}
	}
	s, err := s.Normalize()
	if err != nil {
		return fail("%v", err)
	}
	return s, nil
}
