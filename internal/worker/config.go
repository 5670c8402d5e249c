package worker

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// Config is the configuration of an agent. Settings.Config makes one.
type Config struct {
	// Membership describes this member; its AdminAddr is filled in by New.
	Membership membership.Config
	// AdminAddr is bound by New; port 0 takes a free one.
	AdminAddr string
	// Services are offered.
	Services []advertise.Service
	// DrainDelay is how long a stopping agent offers its services as draining
	// before it leaves: the time in which the news reaches every relay. Requests
	// that were picked before it arrived still find the service. Default 2 s.
	DrainDelay time.Duration

	Logger   *slog.Logger
	Registry *prometheus.Registry
}

// Settings are what an operator can tell an agent.
type Settings struct {
	daemon.Settings
	Services   []string
	DrainDelay time.Duration
}

// DefaultSettings are those of an agent on this host.
func DefaultSettings() Settings {
	return Settings{Settings: daemon.DefaultSettings(membership.RoleWorker), DrainDelay: 2 * time.Second}
}

// Declare adds every setting of an agent to set.
func (s *Settings) Declare(set *settings.Set) {
	const service = "Service"
	s.Settings.Declare(set)
	settings.Strings(set, &s.Services, settings.Spec{Name: "service", Group: service, Placeholder: "NAME=HOST:PORT",
		Usage: "service to offer and where it listens, with options: name=host:port;protocol=h2c;weight=20;slots=100;version=v2;tag=gpu; may be repeated"})
	settings.Duration(set, &s.DrainDelay, settings.Spec{Name: "drain-delay", Group: service,
		Usage: "time for which a stopping agent is still there, so that no relay sends to it any more when it goes"}, settings.AtLeast(time.Duration(0)))
	set.Check(func() []settings.Problem {
		var problems []settings.Problem
		if len(s.Services) == 0 {
			problems = append(problems, settings.Problem{Setting: "service", Reason: "a worker without a service has nothing to do", Allowed: "at least one NAME=HOST:PORT"})
		}
		seen := map[string]bool{}
		for _, text := range s.Services {
			parsed, err := ParseService(text)
			if err != nil {
				problems = append(problems, settings.Problem{Setting: "service", Value: text, Reason: err.Error()})
			} else if seen[parsed.Name] {
				problems = append(problems, settings.Problem{Setting: "service", Value: text, Reason: "service " + parsed.Name + " is given twice", Allowed: "one address for each service"})
			}
			seen[parsed.Name] = true
		}
		return problems
	})
}

// Config turns the settings into the configuration of an agent.
func (s *Settings) Config(logger *slog.Logger, reg *prometheus.Registry) (Config, error) {
	members, err := s.Membership(logger, reg)
	if err != nil {
		return Config{}, err
	}
	cfg := Config{Membership: members, AdminAddr: s.AdminAddr, DrainDelay: s.DrainDelay, Logger: logger, Registry: reg}
	for _, text := range s.Services {
		service, err := ParseService(text)
		if err != nil {
			return Config{}, err
		}
		cfg.Services = append(cfg.Services, service)
	}
	return cfg, nil
}
