package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// noGrace is what grace=0s means; the zero value means the default.
const noGrace time.Duration = -1

// ParseCheck reads a check without its address, which the caller fills in:
//
//	tcp
//	http:/healthz;host=example.org
//	grpc:chat.Chat;interval=2s;timeout=1s;rise=2;fall=3;grace=10s
//
// What is not said has its default, also in the returned Check. A value of 0 is
// refused, except for grace, where it means none.
func ParseCheck(text string) (Check, error) {
	head, options, _ := strings.Cut(strings.TrimSpace(text), ";")
	kind, target, _ := strings.Cut(head, ":")
	c := Check{Kind: Kind(kind)}
	var problems []string
	switch c.Kind {
	case HTTP:
		c.Path = target
	case GRPC:
		c.Service = target
	default:
		if target != "" {
			problems = append(problems, fmt.Sprintf("%.80q after the kind: only http and grpc take something there", target))
		}
	}
	for option := range strings.SplitSeq(options, ";") {
		if option = strings.TrimSpace(option); option == "" {
			continue
		}
		key, value, _ := strings.Cut(option, "=")
		if err := c.set(key, value); err != nil {
			problems = append(problems, err.Error())
		}
	}
	c = c.withDefaults()
	if problems = append(problems, c.problems()...); len(problems) > 0 {
		return Check{}, fmt.Errorf("health check %.200q: %s; write tcp, http:/path or grpc:service, with options: http:/healthz;interval=2s;timeout=1s;rise=2;fall=3;grace=10s",
			text, strings.Join(problems, "; "))
	}
	return c, nil
}

func (c *Check) set(key, value string) (err error) {
	duration := func(to *time.Duration) {
		if *to, err = time.ParseDuration(value); err != nil {
			err = fmt.Errorf("%s %.80q is not a duration such as 500ms or 2s", key, value)
		} else if *to < 0 || *to == 0 && key != "grace" {
			err = fmt.Errorf("%s %.80q: want more than 0, or 0s for no grace", key, value)
		}
	}
	number := func(to *int) {
		if *to, err = strconv.Atoi(value); err != nil {
			err = fmt.Errorf("%s %.80q is not a number", key, value)
		} else if *to == 0 {
			err = fmt.Errorf("%s 0: want 1 to 100", key)
		}
	}
	switch key {
	case "host":
		c.Host = value
	case "interval":
		duration(&c.Interval)
	case "timeout":
		duration(&c.Timeout)
	case "rise":
		number(&c.Rise)
	case "fall":
		number(&c.Fall)
	case "grace":
		if duration(&c.StartGrace); c.StartGrace == 0 {
			c.StartGrace = noGrace
		}
	default:
		err = fmt.Errorf("unknown option %.80q, allowed are host, interval, timeout, rise, fall, grace", key)
	}
	return err
}
