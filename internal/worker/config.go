package worker

import (
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Config is the configuration of an agent. Settings.Config creates one.
type Config struct {
	// Membership describes this member; New sets its AdminAddr.
	Membership membership.Config
	// AdminAddr is bound by New; port 0 takes a free one.
	AdminAddr string
	// Admin defines access to the admin API.
	Admin node.AdminConfig
	// Monitor lets operators read the log; nil: the log cannot be read.
	Monitor *node.Monitor
	// SidecarAddr is bound by New if Membership has an identity; port 0 takes a free one.
	// Relays then reach the services there, over mutual TLS. Empty: they connect to the
	// services directly.
	SidecarAddr string
	// ServiceRoots are the authorities of the certificates of services with h2. Nil: those of
	// this host.
	ServiceRoots *x509.CertPool
	// ProgressTimeout is how long a request through the sidecar may go on without a byte;
	// see sidecar.Config. 0: no limit.
	ProgressTimeout time.Duration
	// DrainTimeout is how long a stop waits for requests through the sidecar, and
	// SessionDrainTimeout for tunnels and answers that have begun; see sidecar.Config.
	DrainTimeout, SessionDrainTimeout time.Duration
	// Rules define which offers the other members accept. New sets Proven.
	Rules advertise.Rules
	// Services are offered, each while its check passes.
	Services []Service
	// ServicesFile is a file of more services, read by New and watched by Run: see
	// ParseServices. Empty: there is none.
	ServicesFile string
	// ReadSettings reads Services again for a reload and names the other settings that have
	// changed. The agent makes one call at a time. Nil: the settings do not change.
	ReadSettings func() (services []Service, needsRestart []string, err error)
	// Running has the settings in effect; accepted reloads update it. Nil: the agent was
	// not started from settings.
	Running *node.Running
	// DrainDelay is how long a stopping agent offers its services as draining before it
	// leaves, so that the drain reaches every relay. Requests that a relay sent before it
	// learned of the drain still reach the service. Default 2 s.
	DrainDelay time.Duration

	Logger   *slog.Logger
	Registry *prometheus.Registry
}

// Settings are the settings of an agent.
type Settings struct {
	node.Settings
	Services     []string
	ServicesFile string
	SidecarAddr  string
	DrainDelay   time.Duration

	ProgressTimeout time.Duration
}

// DefaultSettings are the defaults of an agent on this host.
func DefaultSettings() Settings {
	return Settings{Settings: node.DefaultSettings(identity.RoleWorker), DrainDelay: 2 * time.Second, ProgressTimeout: 60 * time.Second}
}

// Declare adds every setting of an agent to set.
func (s *Settings) Declare(set *settings.Set) {
	const service = "Service"
	s.Settings.Declare(set)
	settings.Strings(set, &s.Services, settings.Spec{Name: serviceSetting, Group: service, Reloadable: true, Placeholder: "NAME=HOST:PORT",
		Usage: "service to offer and where it listens, with options: name=host:port;protocol=h2c;weight=20;slots=100;version=v2;tag=gpu;relays=5;selection=stable;request-timeout=5s;retry=never;session-cookie=sid;" +
			"check=http:/healthz;interval=2s;timeout=1s;rise=2;fall=3;grace=10s; it is offered while its check (tcp, http:/path, grpc:name) passes; relays=0 is the relays' own setting; protocol=h2 is HTTP/2 over TLS, and server-name=NAME what the certificate of such a service is for, in place of the host; proxy-protocol=v2, with protocol=tcp, sends the address of the client in front of each session; parameters of a strategy follow as in selection=ordered:preferred=w2+w1; may be repeated"})
	settings.Address(set, &s.SidecarAddr, settings.Spec{Name: "sidecar-addr", Group: service, Placeholder: "IP:PORT", DefaultText: "port 7421 at the gossip address",
		Usage: "where relays reach the services of a worker that has a certificate, over mutual TLS; without one they connect to the services themselves"})
	settings.String(set, &s.ServicesFile, settings.Spec{Name: "services-file", Group: service, Placeholder: "FILE",
		Usage: "YAML file of more services, which a scheduler writes; it is read again when it changes"})
	settings.Duration(set, &s.DrainDelay, settings.Spec{Name: "drain-delay", Group: service,
		Usage: "time for which a stopping agent is still there, so that no relay sends to it any more when it goes"}, settings.AtLeast(time.Duration(0)))
	s.DeclareDrain(set, service, "through the sidecar when the worker stops", false)
	settings.Duration(set, &s.ProgressTimeout, settings.Spec{Name: "progress-timeout", Group: service,
		Usage: "time after which a request through the sidecar ends that moves no byte in either direction; a quarter longer in effect, so that the relay ends it first; set it as on the relays; 0 is no limit"}, settings.AtLeast(time.Duration(0)))
	set.Check(s.checkServices)
}

// checkServices checks the services of the flags and of the file, each and together.
func (s *Settings) checkServices() []settings.Problem {
	var problems []settings.Problem
	if len(s.Services) == 0 && s.ServicesFile == "" {
		problems = append(problems, settings.Problem{Setting: "service", Related: []string{"services-file"},
			Reason: "a worker without a service has nothing to do", Allowed: "at least one NAME=HOST:PORT, or --services-file"})
	}
	var services []Service
	seen := map[string]bool{}
	for _, text := range s.Services {
		parsed, err := ParseService(text)
		if err != nil {
			problems = append(problems, settings.Problem{Setting: "service", Value: text, Reason: err.Error()})
		} else if seen[parsed.Name] {
			problems = append(problems, settings.Problem{Setting: "service", Value: text, Reason: "service " + parsed.Name + " is given twice", Allowed: "one address for each service"})
		}
		seen[parsed.Name] = true
		services = append(services, parsed)
	}
	file := servicesFile{path: s.ServicesFile}
	imported, err := file.read()
	if len(problems) == 0 {
		for _, err := range each(s.reach(s.GossipReach()).check(services)) {
			problems = append(problems, settings.Problem{Setting: serviceSetting, Reason: err.Error()})
		}
	}
	errs := each(err)
	if all := append(services, imported...); len(errs)+len(problems) == 0 {
		errs = append(each(checkTogether(all)), each(s.reach(s.GossipReach()).check(all))...)
	}
	for _, err := range errs {
		problems = append(problems, settings.Problem{Setting: "services-file", Value: s.ServicesFile, Reason: err.Error()})
	}
	return problems
}

// each returns the errors inside a joined error.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Config turns the settings into the configuration of an agent.
func (s *Settings) Config(logger *slog.Logger, reg *prometheus.Registry) (Config, error) {
	members, err := s.Membership(logger, reg)
	if err != nil {
		return Config{}, err
	}
	services, err := s.services()
	if err != nil {
		return Config{}, err
	}
	if s.GossipReach() == "" { // it is known only now
		if err := s.reach(members.AdvertiseAddr).check(services); err != nil {
			return Config{}, err
		}
	}
	roots, err := s.ServiceRoots()
	if err != nil {
		return Config{}, err
	}
	return Config{
		Membership: members, ServiceRoots: roots, Rules: s.Rules(), AdminAddr: s.AdminAddr, Admin: s.Admin(), SidecarAddr: s.SidecarAddress(), ProgressTimeout: s.ProgressTimeout, DrainDelay: s.DrainDelay, Logger: logger, Registry: reg,
		DrainTimeout: s.DrainTimeout, SessionDrainTimeout: s.SessionDrain(),
		Services: services, ServicesFile: s.ServicesFile,
	}, nil
}

// services returns the services of the flags.
func (s *Settings) services() (services []Service, err error) {
	for _, text := range s.Services {
		service, err := ParseService(text)
		if err != nil {
			return nil, err
		}
		services = append(services, service)
	}
	return services, nil
}

// Reader returns the function for Config.ReadSettings, which reads the settings again
// through running. running fills s, so the caller must not use s any more.
func (s *Settings) Reader(running *node.Running) func() ([]Service, []string, error) {
	return func() ([]Service, []string, error) {
		needRestart, err := running.Read()
		if err != nil {
			return nil, nil, err
		}
		services, err := s.services()
		return services, node.Names(needRestart), err
	}
}

// serviceSetting is the name of the setting that lists services.
const serviceSetting = "service"
