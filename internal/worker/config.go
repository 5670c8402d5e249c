package worker

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Config is the configuration of an agent. Settings.Config creates one.
type Config struct {
	// Membership describes this member; New sets its AdminAddr.
	Membership membership.Config
	// Attach are peer addresses of relays. With any, the agent does not gossip: it holds sessions
	// with a few relays, and of Membership it uses the names, the place and the certificate.
	Attach []string
	// AdminAddr is bound by New; port 0 takes a free one.
	AdminAddr string
	// Admin defines access to the admin API.
	Admin process.AdminConfig
	// Monitor lets operators read the log; nil: the log cannot be read.
	Monitor *process.Monitor
	// SidecarAddr is bound by New if Membership has an identity; port 0 takes a free one.
	// Relays then reach the services there, over mutual TLS. Empty: they connect to the
	// services directly.
	SidecarAddr string
	// checkedSidecar is the configured address of the sidecar, set by Check, which binds another
	// one: relays would connect to this one.
	checkedSidecar string
	// ReadyRelays is how many relays must have connected to the sidecar, once, before the agent is
	// ready: all that it sees if these are fewer. 0, or without a sidecar: it does not wait for them.
	ReadyRelays int
	// ServiceRoots are the authorities of the certificates of services with h2. Nil: those of
	// this host.
	ServiceRoots *x509.CertPool
	// ProgressTimeout is how long a request through the sidecar may go on without a byte;
	// see sidecar.Config. 0: no limit.
	ProgressTimeout time.Duration
	// MaxAnswerHead bounds the head of a service's answer through the sidecar, in bytes.
	MaxAnswerHead int
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
	Running *process.Running
	// DrainDelay is how long a stopping agent offers its services as draining before it
	// leaves, so that the drain reaches every relay. Requests that a relay sent before it
	// learned of the drain still reach the service. Default 2 s.
	DrainDelay time.Duration

	Logger   *slog.Logger
	Registry *prometheus.Registry
}

// Settings are the settings of an agent.
type Settings struct {
	process.Settings
	Attach       []string
	Services     []string
	ServicesFile string
	SidecarAddr  string
	DrainDelay   time.Duration

	ProgressTimeout time.Duration
	MaxAnswerHead   int
	ReadyRelays     int
}

// DefaultSettings are the defaults of an agent on this host.
func DefaultSettings() Settings {
	return Settings{Settings: process.DefaultSettings(identity.RoleWorker), DrainDelay: 2 * time.Second, ProgressTimeout: 60 * time.Second, MaxAnswerHead: upstream.DefaultMaxResponseHead}
}

// Declare adds every setting of an agent to set.
func (s *Settings) Declare(set *settings.Set) {
	const service = "Service"
	s.Gossipless = func() bool { return len(s.Attach) > 0 }
	s.Settings.Declare(set)
	settings.Strings(set, &s.Services, settings.Spec{Name: serviceSetting, Short: "service to offer, such as hello=:9001; repeatable", Initial: "[hello=127.0.0.1:9001]", Instead: "services-file", Group: service, Reloadable: true, Placeholder: "NAME=HOST:PORT", Redact: RedactService,
		Usage: "service to offer and where it listens, with options: name=host:port;protocol=h2c;weight=20;slots=100;version=v2;tag=gpu;relays=5;selection=stable;request-timeout=5s;retry=never;session-cookie=sid;" +
			"check=http:/healthz;interval=2s;timeout=1s;rise=2;fall=3;grace=10s; it is offered while its check (tcp, http:/path, grpc:name) passes; relays=0 is the relays' own setting; protocol=h2 is HTTP/2 over TLS, and server-name=NAME what the certificate of such a service is for, in place of the host; proxy-protocol=v2, with protocol=tcp, sends the address of the client in front of each session; parameters of a strategy follow as in selection=ordered:preferred=w2+w1; may be repeated"})
	settings.Strings(set, &s.Attach, settings.Spec{Name: "attach", Short: "peer address of a relay, in place of --join; repeatable", Group: "Network", Placeholder: "HOST[:PORT]",
		Usage: "peer address of any relay, dns+name[:port] or srv+name: this worker then takes part without gossip, by sessions with a few relays, and needs neither --join nor a gossip key; for fleets of more than about 2,000 members; may be repeated"})
	settings.Address(set, &s.SidecarAddr, settings.Spec{Name: "sidecar-addr", Group: service, Placeholder: "IP:PORT", DefaultText: "port 7421 at the gossip address",
		Usage: "where relays reach the services of a worker that has a certificate, over mutual TLS; without one they connect to the services themselves"})
	settings.String(set, &s.ServicesFile, settings.Spec{Name: "services-file", Short: "YAML file of more services", Group: service, Placeholder: "FILE",
		Usage: "YAML file of more services, which a scheduler writes; it is read again when it changes"})
	settings.Duration(set, &s.DrainDelay, settings.Spec{Name: "drain-delay", Group: service,
		Usage: "time for which a stopping agent is still there, so that no relay sends to it any more when it goes"}, settings.AtLeast(time.Duration(0)))
	s.DeclareDrain(set, service, "through the sidecar when the worker stops", false)
	settings.Duration(set, &s.ProgressTimeout, settings.Spec{Name: "progress-timeout", Group: service,
		Usage: "time after which a request through the sidecar ends that moves no byte in either direction; a quarter longer in effect, so that the relay ends it first; set it as on the relays; 0 is no limit"}, settings.AtLeast(time.Duration(0)))
	settings.Int(set, &s.MaxAnswerHead, settings.Spec{Name: "max-answer-head", Group: service, Placeholder: "BYTES",
		Usage: "size of the head of a service's answer through the sidecar; set it as on the relays"}, settings.Between(upstream.LeastResponseHead, upstream.MostResponseHead))
	settings.Int(set, &s.ReadyRelays, settings.Spec{Name: readyRelaysSetting, Group: service, Placeholder: "RELAYS",
		Usage: "relays that must have connected before this worker is ready for the first time, or all that it sees if these are fewer, so that a rollout waits for the plan; at most as many as a worker has (--min-peers-per-worker of the relays); requires a certificate; 0: it does not wait"}, settings.Between(0, 100))
	set.Check(s.checkServices)
	set.Check(s.checkReadyRelays)
	set.Check(s.checkAttach)
	set.Check(s.checkListeners)
	set.Warn(s.servicesOfOtherCase)
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
		for _, err := range each(s.reach(s.reachAddr()).check(services)) {
			problems = append(problems, settings.Problem{Setting: serviceSetting, Reason: err.Error()})
		}
	}
	errs := each(err)
	if all := append(services, imported...); len(errs)+len(problems) == 0 {
		errs = append(each(checkTogether(all)), each(s.reach(s.reachAddr()).check(all))...)
	}
	for _, err := range errs {
		problems = append(problems, settings.Problem{Setting: "services-file", Value: s.ServicesFile, Reason: err.Error()})
	}
	return problems
}

// servicesOfOtherCase warns of services of the flags and of the file whose names differ only in
// case.
func (s *Settings) servicesOfOtherCase() (warnings []string) {
	services, err := s.services()
	file := servicesFile{path: s.ServicesFile}
	imported, fileErr := file.read()
	if err != nil || fileErr != nil {
		return nil // checkServices reports it
	}
	var names []string
	for _, service := range append(services, imported...) {
		names = append(names, service.Name)
	}
	for _, pair := range settings.OtherCase(names) {
		warnings = append(warnings, fmt.Sprintf("the services %s and %s differ only in case: they are two services", pair[0], pair[1]))
	}
	return warnings
}

// checkReadyRelays requires the listener at which a worker sees relays connect.
func (s *Settings) checkReadyRelays() []settings.Problem {
	if s.ReadyRelays == 0 || s.TLSCert != "" {
		return nil
	}
	return []settings.Problem{{Setting: readyRelaysSetting, Related: []string{"tls-cert"},
		Reason: "without a certificate relays connect to the services themselves, so a worker cannot see them", Allowed: "0, or --tls-cert, --tls-key and --tls-ca"}}
}

// checkListeners checks the addresses that this process itself binds.
func (s *Settings) checkListeners() []settings.Problem {
	all := []process.Listener{{Setting: "sidecar-addr", Addr: s.SidecarAddress()}, {Setting: "admin-addr", Addr: s.AdminAddr}}
	if len(s.Attach) == 0 {
		all = append([]process.Listener{{Setting: "gossip-addr", Addr: s.GossipAddr}}, all...)
	}
	return process.CheckListeners(all...)
}

// checkAttach checks what differs for a worker that does not gossip.
func (s *Settings) checkAttach() []settings.Problem {
	if len(s.Attach) == 0 {
		return nil
	}
	var problems []settings.Problem
	if len(s.Join) > 0 {
		problems = append(problems, settings.Problem{Setting: "attach", Related: []string{"join"},
			Reason: "a worker gossips or is attached", Allowed: "--join or --attach"})
	}
	for _, seed := range s.Attach {
		err := session.CheckSeed(seed, s.TLSCert != "" || s.Insecure)
		if err == nil {
			continue
		}
		problem := settings.Problem{Setting: "attach", Value: seed, Reason: err.Error()}
		if errors.Is(err, session.ErrClearText) {
			problem.Related, problem.Allowed = []string{"insecure", "tls-cert"}, "--tls-cert, --tls-key and --tls-ca, a loopback address, or --insecure"
		}
		problems = append(problems, problem)
	}
	elsewhere := func(seed string) bool { return errors.Is(session.CheckSeed(seed, false), session.ErrClearText) }
	if s.TLSCert != "" && s.AdvertiseAddr == "" && slices.ContainsFunc(s.Attach, elsewhere) && s.sidecarOnLoopback() {
		problems = append(problems, settings.Problem{Setting: "sidecar-addr", Value: s.SidecarAddr, Related: []string{"attach", "advertise-addr"},
			Reason: "relays of other hosts would be given an address of loopback", Allowed: "HOST:PORT of this host, or :PORT with --advertise-addr"})
	}
	return problems
}

// sidecarOnLoopback reports whether only this host reaches the sidecar, at the address that is offered
// without --advertise-addr: on every interface it is that of gossip.
func (s *Settings) sidecarOnLoopback() bool {
	addr := s.SidecarAddress()
	if bound, err := process.ListenAddr(addr); err == nil && bound.Addr().IsUnspecified() {
		addr = s.GossipAddr
	}
	bound, err := process.ListenAddr(addr)
	return err == nil && bound.Addr().IsLoopback()
}

// reachAddr is the address that specifies where others reach this worker; empty while it is not
// known. The relays see where the sessions of an attached worker come from.
func (s *Settings) reachAddr() string {
	if len(s.Attach) > 0 && s.AdvertiseAddr == "" {
		return ""
	}
	return s.GossipReach()
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
	if s.reachAddr() == "" { // it is known only now
		if err := s.reach(members.AdvertiseAddr).check(services); err != nil {
			return Config{}, err
		}
	}
	roots, err := s.ServiceRoots()
	if err != nil {
		return Config{}, err
	}
	return Config{
		Membership: members, Attach: s.Attach, ServiceRoots: roots, Rules: s.Rules(), AdminAddr: s.AdminAddr, Admin: s.Admin(), SidecarAddr: s.SidecarAddress(), ProgressTimeout: s.ProgressTimeout, MaxAnswerHead: s.MaxAnswerHead, ReadyRelays: s.ReadyRelays, DrainDelay: s.DrainDelay, Logger: logger, Registry: reg,
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
func (s *Settings) Reader(running *process.Running) func() ([]Service, []string, error) {
	return func() ([]Service, []string, error) {
		needRestart, err := running.Read()
		if err != nil {
			return nil, nil, err
		}
		services, err := s.services()
		return services, process.Names(needRestart), err
	}
}

// serviceSetting is the name of the setting that lists services, readyRelaysSetting that of the relays
// that a worker waits for.
const (
	serviceSetting     = "service"
	readyRelaysSetting = "ready-relays"
)
