package relay

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// Settings are the settings of a relay.
type Settings struct {
	process.Settings
	IngressAddrs []string // --ingress-addr
	PeerAddr     string
	TCP          tcpSettings

	IngressTLSCerts, IngressTLSKeys []string // --ingress-tls-cert, --ingress-tls-key
	IngressClientCA                 string
	IngressClientClaims             following // --ingress-client-claims

	// provenFleet is what auto of --plan-from-fleet means, from the first Config on: a reload applies
	// neither of the settings from which it follows.
	provenFleet *bool

	// Fields of the Config of the same name.
	Plans      routing.PlanSettings // but Skip
	Links      routing.LinkConfig
	Selection  selection.Config
	Forwarding relaypool.Config
	Upstream   upstream.Config
	Tracing    tracing.Config
	Requests   Requests // but what the fields below determine, and DrainTimeout

	PlanFromFleet  following // --plan-from-fleet
	SkipRelays     settings.List[map[string][]string]
	Strategies     settings.List[map[string]strategy.Spec] // --selection
	KeySource      settings.List[ingress.Keys]
	SessionCookies settings.List[map[string]string] // --session-cookie
	Policies       policySettings

	AttemptTimeout       attemptTime
	MaxInFlightPerClient clientShare
	TrustedProxies       settings.List[[]netip.Prefix]
	ProxyProtocolFrom    settings.List[[]netip.Prefix]

	ProgressTimeout time.Duration
	Clients         ClientConfig

	Circuit circuitSettings

	RequestLog   string
	Explanations int // --request-log-explain

	SharedKey, SharedKeyFile string

	MaxServices, NewServicesPerMinute int
	RequireServiceNames               bool
	AllowClearText                    []string
	ServiceServerNames                settings.List[map[string]string] // --service-server-name
}

// DefaultSettings returns the settings of a relay on this host.
func DefaultSettings() Settings {
	return Settings{
		Settings:             process.DefaultSettings(identity.RoleRelay),
		IngressAddrs:         []string{"127.0.0.1:" + process.IngressPort},
		PeerAddr:             "127.0.0.1:" + process.PeerPort,
		PlanFromFleet:        followAuto,
		IngressClientClaims:  followAuto,
		TCP:                  newTCPSettings(),
		SkipRelays:           settings.NewList(parseSkips),
		Strategies:           settings.NewList(parseSelection),
		KeySource:            settings.NewList(parseKeySources),
		SessionCookies:       settings.NewList(parseSessionCookies),
		ServiceServerNames:   settings.NewList(parseServerNames),
		Policies:             newPolicySettings(),
		TrustedProxies:       settings.NewList(parseNetworks),
		ProxyProtocolFrom:    settings.NewList(parseNetworks),
		Plans:                routing.DefaultPlanSettings(),
		Links:                routing.DefaultLinks(),
		Selection:            selection.DefaultConfig(),
		Forwarding:           defaultForwarding(),
		Upstream:             upstream.DefaultConfig(),
		Tracing:              tracing.Config{SampleRatio: 0.01},
		Requests:             Requests{Requests: defaultRequests()},
		AttemptTimeout:       attemptTime{percent: 100 * ingress.DefaultAttemptShare},
		MaxInFlightPerClient: clientShare{free: true},
		ProgressTimeout:      ingress.DefaultProgress,
		Clients:              defaultClients,
		Circuit:              defaultCircuitSettings(),
		MaxServices:          advertise.DefaultMaxServices,
		NewServicesPerMinute: advertise.DefaultNewServicesPerMinute,
	}
}

// defaultForwarding leaves the number of primaries to the router.
func defaultForwarding() relaypool.Config {
	cfg := relaypool.DefaultConfig()
	cfg.Primaries = 0
	return cfg
}

// defaultRequests keeps the records of requests, which the router of a program does not write.
func defaultRequests() ingress.Requests {
	r := ingress.DefaultRequests()
	r.Record = defaultRecords
	return r
}

// Declare adds every setting of a relay to set.
func (s *Settings) Declare(set *settings.Set) {
	const network, plan, requests = "Network", "Affinity", "Requests"
	s.Settings.Declare(set)
	settings.Enum(set, &s.Role, settings.Spec{Name: "role", Group: "Identity", Usage: "relay, or gate for a relay that only forwards to relays"},
		identity.RoleRelay, identity.RoleGate)
	settings.Strings(set, &s.IngressAddrs, settings.Spec{Name: "ingress-addr", Short: "address for clients; repeatable", Group: network, Placeholder: "[tls://]IP:PORT", Usage: "address for requests of clients, in clear text, or with TLS as tls://IP:PORT, where ;cert=FILE;key=FILE (may be repeated) and ;client-ca=FILE (;client-ca= for none) replace --ingress-tls-cert, --ingress-tls-key and --ingress-client-ca; port 0 is a free one; may be repeated"})
	settings.Address(set, &s.PeerAddr, settings.Spec{Name: "peer-addr", Short: "address for other relays", Group: network, Placeholder: "IP:PORT", Usage: "address for requests that other relays forward"})
	s.TCP.declare(set)

	settings.Custom(set, &s.Plans.Version, settings.Spec{Name: "plan-version", Group: plan, Reloadable: true, Placeholder: "NUMBER", Usage: "version of the settings of the plan, from here to --skip-relay: all relays plan with those of the highest version that one of them has, so a higher number on one relay and a reload of it changes the fleet; 0 is no version: they apply to this relay only"}, planVersions)
	settings.Int(set, &s.Plans.Minimums.PeersPerWorker, settings.Spec{Name: "min-peers-per-worker", Group: plan, Reloadable: true, Usage: "relays that connect to each worker"}, settings.AtLeast(affinity.LeastPeersPerWorker))
	settings.Int(set, &s.Plans.Minimums.PeersPerRelay, settings.Spec{Name: "min-peers-per-relay", Group: plan, Reloadable: true, Usage: "workers that each relay connects to at least"}, settings.AtLeast(1))
	settings.Custom(set, &s.Plans.RelaysPerService, settings.Spec{Name: "relays-per-service", Group: plan, Reloadable: true, Placeholder: "auto|NUMBER", Usage: "relays that serve one service, the others forward to them: a number, at least min-peers-per-worker, or auto for as many as a service of its size needs"}, relayCounts)
	settings.Int(set, &s.Plans.MaxRelaysPerService, settings.Spec{Name: "max-relays-per-service", Group: plan, Reloadable: true, Usage: "most relays that workers can ask for to serve their service"}, settings.Between(1, advertise.MaxRelays))
	settings.Enum(set, &s.Plans.IndexSource, settings.Spec{Name: "index-source", Group: plan, Reloadable: true, Usage: "where a relay's index comes from: its rank, or its slot, which moves fewer connections when relays come and go"},
		affinity.IndexRank, affinity.IndexSlot)
	settings.Enum(set, &s.Plans.Strategy, settings.Spec{Name: "strategy", Group: plan, Reloadable: true, Usage: "how workers are shared out among relays: projection for even ranges, rendezvous for the fewest connections moved"},
		affinity.Projection, affinity.Rendezvous)
	settings.Int(set, &s.Plans.PeersPerTier, settings.Spec{Name: "min-peers-per-tier", Group: plan, Reloadable: true, Usage: "workers of its own datacenter below which a relay also connects to those of its region, and then to all, and relays near it below which it, or a gate, also forwards to those farther away"}, settings.AtLeast(1))
	settings.Float(set, &s.Plans.ZoneSlack, settings.Spec{Name: "zone-slack", Group: plan, Reloadable: true, Usage: "how much more than the mean load the workers of a zone (a datacenter) may get from its own relays before these send the rest to other zones; 1 for the same load everywhere"}, settings.Between(1.0, affinity.MaxZoneSlack))
	settings.Parsed(set, &s.SkipRelays, settings.Spec{Name: "skip-relay", Group: plan, Reloadable: true, Placeholder: "SERVICE=RELAY", Usage: "relay that must not serve a service; may be repeated"})
	settings.Custom(set, &s.PlanFromFleet, settings.Spec{Name: "plan-from-fleet", Group: plan, Reloadable: true, Placeholder: "auto|true|false", Usage: "whether settings of the plan with a higher version, which another relay states, replace those of this relay; auto is true with certificates or where gossip is on loopback"}, followings)
	settings.Int(set, &s.Links.Slack, settings.Spec{Name: "peer-slack", Group: plan, Usage: "places outside the range within which an open connection to a worker is kept, in a range of more than 50 workers for each 50 of them; not for a gate"}, settings.AtLeast(0))
	settings.Duration(set, &s.Links.DrainDelay, settings.Spec{Name: "peer-drain-delay", Group: plan, Usage: "time for which a connection to a worker that is not needed any more stays open; longer than the relays need to agree; not for a gate"}, settings.AtLeast(time.Duration(0)))
	settings.Duration(set, &s.Links.Grace, settings.Spec{Name: "member-grace", Group: plan, Usage: "time for which a relay or worker that vanished keeps its place, so that a restart moves no connection"}, settings.AtLeast(time.Duration(0)))

	settings.String(set, &s.Requests.Domain, settings.Spec{Name: "domain", Short: "domain whose first label names the service: hello.DOMAIN", Group: requests, Reloadable: true, Usage: "domain whose first label names the service: billing.<domain>; with . a host without a dot is the name"},
		settings.Rule[string]{Allowed: "a domain without scheme and port, such as example.com, or .", Holds: func(domain string) bool { return ingress.CheckDomain(domain) == nil }})
	settings.Section(set, &s.Requests.Routes, settings.Spec{Name: "routes", Group: requests, Reloadable: true, Usage: "list of {host, path_prefix, headers, service, rate, burst}; the most specific that matches names the service, and rate bounds its requests as in rate-limits"}, ingress.CheckRoutes)
	settings.Section(set, &s.Requests.Blocks, settings.Spec{Name: "blocks", Group: requests, Reloadable: true, Usage: "list of {caller, service, until, reason}: requests of this caller (the name in its certificate, its address, of IPv6 with its whole /64, or what a trusted proxy names) to this service are refused until this time; * for one of the two is all"}, ingress.CheckBlocks)
	settings.Section(set, &s.Requests.RateLimits, settings.Spec{Name: "rate-limits", Group: requests, Reloadable: true, Usage: "list of {service, caller, rate, burst}: requests that all relays together let pass, such as 100/s, 30/m or 1000/h, to this service (* is each service), of all callers together, of this one, or with * of each; burst is how many may come together, without it half a second of the rate or five at each relay; approximate, because each relay counts its share"}, ingress.CheckRateLimits)
	settings.Parsed(set, &s.Strategies, settings.Spec{Name: "selection", Group: requests, Placeholder: "[SERVICE=]STRATEGY", Usage: "strategy that picks the worker for a request, such as stable, slots;vnodes=16 or ordered;preferred=w2,w1: of one service, in place of the advertised one, or of all services that advertise none (p2c without it); use the same value on all relays; may be repeated"})
	settings.Parsed(set, &s.KeySource, settings.Spec{Name: "key-source", Group: requests, Reloadable: true, Placeholder: "[SERVICE=]SOURCE", Usage: "where the key of a client's request is, for the strategies that go by it: header:NAME, cookie:NAME, query:NAME or caller (the name in the client's certificate, its address, or what a trusted proxy names), the first of several that the request has, as in cookie:sid;caller: of one service, or of all that have none of their own (header:Ringway-Key without it); use the same value on all relays; may be repeated"})
	settings.Parsed(set, &s.SessionCookies, settings.Spec{Name: "session-cookie", Group: requests, Placeholder: "SERVICE=NAME", Usage: "name of the cookie by which the requests of one client to a service stay at one worker, signed with the shared key, in place of the one that its workers advertise; SERVICE= disables the cookie; all relays that serve the service connect to all of its workers; use the same value on all relays; may be repeated"})
	settings.Duration(set, &s.Requests.Timeout, settings.Spec{Name: "request-timeout", Group: requests, Reloadable: true, Usage: "time until the answer to a request must begin, all attempts together, counted from the last byte of the client's body, and not while a client keeps a stream of HTTP/2 of unknown length open, as streaming calls of gRPC do; a client's Ringway-Timeout (milliseconds) or grpc-timeout header shortens it"}, settings.Above(time.Duration(0)))
	settings.Custom(set, &s.AttemptTimeout, settings.Spec{Name: "attempt-timeout", Group: requests, Reloadable: true, Placeholder: "TIME|N%", Usage: "time for one attempt of a request that may be repeated, after which another endpoint is tried, as a duration or a percentage of request-timeout; an attempt after the first has at most half of what is left of request-timeout; the last attempt, and a request that may not be repeated, has all of that; 0 gives it to all"}, attemptTimes)
	s.Policies.declare(set, requests)
	settings.Duration(set, &s.ProgressTimeout, settings.Spec{Name: "progress-timeout", Group: requests, Usage: "time without a byte in either direction after which a request is ended: a client that does not read its answer or send its body, a worker that stops within its answer, an idle tunnel; 0 is no limit"}, settings.AtLeast(time.Duration(0)))
	settings.Int(set, &s.Requests.MaxAttempts, settings.Spec{Name: "max-attempts", Group: requests, Reloadable: true, Usage: "endpoints tried for one request"}, settings.Between(1, 8))
	settings.Float(set, &s.Requests.RetryBudget, settings.Spec{Name: "retry-budget", Group: requests, Reloadable: true, Usage: "retries as a share of the requests of a service"}, settings.Between(0.0, 1.0))
	settings.Int(set, &s.Requests.MaxInFlight, settings.Spec{Name: "max-in-flight", Group: requests, Reloadable: true, Usage: "requests of one service that this relay carries at a time; more are refused"}, settings.AtLeast(1))
	settings.Bool(set, &s.Requests.AdaptiveInFlight, settings.Spec{Name: "adaptive-in-flight", Group: requests, Reloadable: true, Usage: "while the endpoints of a service cannot keep up, also refuse requests of it beyond what they complete in time; nothing is refused by this while they keep up, and streams, tunnels and uploads never are; max-in-flight still applies"})
	settings.Custom(set, &s.MaxInFlightPerClient, settings.Spec{Name: "max-in-flight-per-client", Group: requests, Reloadable: true, Placeholder: "auto|N|N%", Usage: "requests of one client address (IPv6: one /64) that this relay carries at a time, to all services together, as a number or a percentage of max-in-flight; auto is a quarter of what the requests of all clients leave of max-in-flight, at least 100; more are refused; trusted proxies are not limited, and the clients of another proxy on this host are those that it names in X-Forwarded-For or X-Real-IP; 0 is no limit"}, clientShares)
	settings.Int(set, &s.Requests.MaxClientConnections, settings.Spec{Name: "max-client-connections", Group: requests, Reloadable: true, DefaultText: "half of what the limit of open files leaves", Usage: "connections of clients that are open at a time, so that descriptors are left for workers, gossip and the admin API; a new one takes the place of the one that waits longest for its next request, or waits itself while all are in use; 0 is the default: half of the limit of open files less 128"}, settings.AtLeast(0))
	settings.Duration(set, &s.Clients.HeadTimeout, settings.Spec{Name: "client-head-timeout", Group: requests, Usage: "time for a client to send the head of a request"}, settings.Above(time.Duration(0)))
	settings.Duration(set, &s.Clients.IdleTimeout, settings.Spec{Name: "client-idle-timeout", Group: requests, Usage: "time for which a connection of a client may wait for its next request; longer than that of a proxy in front, so that the proxy closes first"}, settings.Above(time.Duration(0)))
	settings.Int(set, &s.Clients.MaxHead, settings.Spec{Name: "max-request-head", Group: requests, Placeholder: "BYTES", Usage: "size of the head of a request; a larger one is answered with 431; what workers accept may be less"}, settings.Between(4<<10, 1<<20))
	settings.Int(set, &s.Clients.MaxStreams, settings.Spec{Name: "max-client-streams", Group: requests, Usage: "requests in flight on one HTTP/2 connection of a client"}, settings.Between(1, 10_000))
	settings.Strings(set, &s.Requests.OnlyServices, settings.Spec{Name: "ingress-service", Group: requests, Reloadable: true, Placeholder: "SERVICE", Usage: "service that clients of this relay may reach; without any, all services; may be repeated"}, settings.Rule[string]{Allowed: "names of services", Holds: func(name string) bool { return affinity.ValidateService(name) == nil }})
	settings.Parsed(set, &s.TrustedProxies, settings.Spec{Name: "trusted-proxy", Group: requests, Reloadable: true, Placeholder: "CIDR", Usage: "network of proxies in front of the relay whose X-Forwarded-*, Forwarded, X-Real-IP and Ringway-Caller headers are believed; those of other clients are replaced or dropped; may be repeated"}, proxyNetwork)
	settings.Parsed(set, &s.ProxyProtocolFrom, settings.Spec{Name: "proxy-protocol-from", Group: requests, Reloadable: true, Placeholder: "CIDR", Usage: "network of load balancers that pass TCP connections on to the addresses for clients: each of their connections must begin with a header of the PROXY protocol, version 1 or 2, whose source is the client's address; a header from elsewhere is malformed, or a part of a TCP session; may be repeated"}, proxyNetwork)
	s.DeclareDrain(set, requests, "when the relay stops", true)
	settings.Bool(set, &s.Requests.ExposeRouteHeaders, settings.Spec{Name: "expose-route-headers", Group: requests, Reloadable: true, Usage: "report relay, endpoint and attempts to clients in answer headers, and in the relay's own error answers the attempts and their errors"})
	settings.Bool(set, &s.Requests.Via, settings.Spec{Name: "via", Group: requests, Reloadable: true, Usage: "add the version of HTTP and the ID of this relay to the Via header of requests, as RFC 9110 asks of gateways; services may react to it: nginx does not compress answers to such requests"})

	s.declareEndpoints(set)
	s.Circuit.declare(set)
	s.declareRecords(set)

	const traces = "Tracing"
	settings.String(set, &s.Tracing.Endpoint, settings.Spec{Name: "otlp-endpoint", Group: traces, Placeholder: "URL",
		Usage: "collector that gets spans of requests by OTLP over HTTP, such as http://127.0.0.1:4318; without it requests are not traced and the trace headers of callers pass as they are"}, collectorURL)
	settings.Float(set, &s.Tracing.SampleRatio, settings.Spec{Name: "trace-sample-ratio", Group: traces,
		Usage: "share of the requests that are traced; a caller's traceparent header decides for itself"}, settings.Between(0.0, 1.0))

	const security = "Security"
	settings.Strings(set, &s.IngressTLSCerts, settings.Spec{Name: "ingress-tls-cert", Group: security, Placeholder: "FILE",
		Usage: "certificate, with its intermediates, that clients see at the addresses tls:// of --ingress-addr that have no cert, chosen by the name that they ask for; the first is the default; read again when it changes; may be repeated"})
	settings.Strings(set, &s.IngressTLSKeys, settings.Spec{Name: "ingress-tls-key", Group: security, Placeholder: "FILE",
		Usage: "private key of the --ingress-tls-cert at the same place; may be repeated"})
	settings.String(set, &s.IngressClientCA, settings.Spec{Name: "ingress-client-ca", Group: security, Placeholder: "FILE",
		Usage: "authorities, one of which must have issued the certificate that every client presents at the addresses tls:// of --ingress-addr that have no client-ca; the member that it names, or its name, is the caller; read again when it changes"})
	settings.Custom(set, &s.IngressClientClaims, settings.Spec{Name: "ingress-client-claims", Group: security, Placeholder: "auto|true|false",
		Usage: "whether a client certificate must have the role client (or observer), the cluster and the environment of this relay, as relay tls cert create writes them; auto requires that of certificates that an authority of --tls-ca has issued, so that those of workers and of other fleets send no requests as clients"}, followings)
	settings.String(set, &s.SharedKey, settings.Spec{Name: "shared-key", Group: security, Secret: true,
		Usage: "key that all relays sign session cookies with, at least 32 bytes, hex or raw; without it they agree on one"})
	settings.String(set, &s.SharedKeyFile, settings.Spec{Name: "shared-key-file", Group: security, Placeholder: "FILE",
		Usage: "file with the shared key, such as a mounted secret; it may appear later"})
	settings.Strings(set, &s.AllowClearText, settings.Spec{Name: "allow-clear-text", Group: security, Placeholder: "SERVICE",
		Usage: "service to which a relay with a certificate also sends requests in clear text, where its workers have no sidecar; not for a gate; may be repeated"})
	settings.Parsed(set, &s.ServiceServerNames, settings.Spec{Name: "service-server-name", Group: security, Placeholder: "[SERVICE=]NAME",
		Usage: "what the certificate of a service with protocol=h2 must be for where its workers have no sidecar, of one service or of all others, in place of the host that the worker advertises; not for a gate; may be repeated"})
	settings.Int(set, &s.MaxServices, settings.Spec{Name: "max-services", Group: security,
		Usage: "most service names that this member accepts; those it knows stay, more are refused; use the same value on all relays"}, settings.AtLeast(1))
	settings.Int(set, &s.NewServicesPerMinute, settings.Spec{Name: "new-services-per-minute", Group: security,
		Usage: "names of services not known before that one worker may bring in a minute, after a first --max-services-per-record of them; more wait"}, settings.AtLeast(1))
	settings.Bool(set, &s.RequireServiceNames, settings.Spec{Name: "require-service-names", Group: security,
		Usage: "use no offer of a worker whose certificate names no services (tls cert create --service); set it on all relays when relay check lists no such worker any more; not with --identity-template"})
	set.Check(func() []settings.Problem {
		switch {
		case !s.RequireServiceNames:
		case s.TLSCert == "":
			return []settings.Problem{{Setting: "require-service-names", Related: []string{"tls-cert"},
				Reason: "without certificates there are no names of services in them", Allowed: "true with --tls-cert, --tls-key and --tls-ca"}}
		case s.IdentityTemplate != "":
			return []settings.Problem{{Setting: "require-service-names", Related: []string{"identity-template"},
				Reason: "with --identity-template no certificate names services, because it has one SPIFFE ID and no other URI: every offer would be refused", Allowed: "false, or true with certificates that have names ringway://… and without --identity-template"}}
		}
		return nil
	})
	set.Check(func() []settings.Problem {
		var problems []settings.Problem
		for _, service := range s.AllowClearText {
			if affinity.ValidateService(service) != nil {
				problems = append(problems, settings.Problem{Setting: "allow-clear-text", Value: service, Reason: "not the name of a service", Allowed: "SERVICE"})
			}
		}
		return problems
	})
	set.Check(func() []settings.Problem { return s.CheckExposed("peer-addr", s.PeerAddr) })
	set.Check(s.checkIngress)
	set.Check(func() []settings.Problem { return checkSessions(s.TCP.listeners(), s.Requests) })
	set.Check(func() []settings.Problem {
		if k, m := s.Plans.RelaysPerService, s.Plans.Minimums.PeersPerWorker; k != 0 && k < m {
			return []settings.Problem{{
				Setting: "relays-per-service", Related: []string{"min-peers-per-worker"},
				Reason:  fmt.Sprintf("fewer relays than --min-peers-per-worker (%d) connects to each worker", m),
				Allowed: fmt.Sprintf("auto, or a whole number of %d or more", m),
			}}
		}
		return nil
	})
	set.Check(func() []settings.Problem { return checkCookies(s.SessionCookies.Value, s.Policies.policies()) })
	set.Check(s.checkPlan)
	set.Warn(s.routesOfOtherCase)
	set.Check(func() []settings.Problem { return s.checkGate(set) })
}

// routesOfOtherCase warns of routes whose services differ only in case.
func (s *Settings) routesOfOtherCase() (warnings []string) {
	var names []string
	for _, route := range s.Requests.Routes {
		names = append(names, route.Service)
	}
	for _, pair := range settings.OtherCase(names) {
		warnings = append(warnings, fmt.Sprintf("routes: the services %s and %s differ only in case: they are two services", pair[0], pair[1]))
	}
	return warnings
}

// plans returns Plans with what other fields of the settings determine.
func (s *Settings) plans() routing.PlanSettings {
	plans := s.Plans
	plans.Skip = s.SkipRelays.Value
	return plans
}

// plansFromFleet reports whether settings that other relays state may be used: their
// statements prove who made them, or only this host can send them.
func (s *Settings) plansFromFleet() bool {
	if s.provenFleet == nil {
		a, err := process.ListenAddr(s.GossipAddr)
		proven := s.TLSCert != "" || err == nil && a.Addr().IsLoopback()
		s.provenFleet = &proven
	}
	if s.PlanFromFleet != followAuto {
		return s.PlanFromFleet == followYes
	}
	return *s.provenFleet
}

// checkPlan refuses settings that the other relays would refuse.
func (s *Settings) checkPlan() []settings.Problem {
	plans := s.plans().WithNeeds(routing.StrategiesConfig{ByService: s.Strategies.Value, SessionCookies: s.SessionCookies.Value})
	if plans.Version == 0 {
		return nil
	}
	if err := plans.Stateable(); err != nil {
		return []settings.Problem{{Setting: "plan-version", Related: append(slices.Clone(check.PlanSettings), "selection", "session-cookie"), Reason: "the other relays would refuse these settings: " + err.Error(), Allowed: "settings of the plan within these bounds, or 0 for this relay only"}}
	}
	return nil
}

// rules returns the rules of every member, with a relay's own bounds.
func (s *Settings) rules() advertise.Rules {
	rules := s.Rules()
	rules.MaxServices, rules.NewServicesPerMinute = s.MaxServices, s.NewServicesPerMinute
	rules.RequireServiceNames = s.RequireServiceNames
	return rules
}

// Config returns the configuration of a relay with these settings.
func (s *Settings) Config(logger *slog.Logger, reg *prometheus.Registry) (Config, error) {
	members, err := s.Membership(logger, reg)
	if err != nil {
		return Config{}, err
	}
	// Load has reported them, but a program may have set the lists itself.
	problems := slices.Concat(s.SkipRelays.Problems(), s.Strategies.Problems(), s.KeySource.Problems(), s.SessionCookies.Problems(), s.ServiceServerNames.Problems(), s.Policies.Flags.Problems(), s.TCP.problems())
	if len(problems) > 0 {
		return Config{}, settings.Problems(problems)
	}
	roots, err := s.ServiceRoots()
	if err != nil {
		return Config{}, err
	}
	cfg := Config{
		Membership:   members,
		IngressAddrs: s.IngressAddrs, PeerAddr: s.PeerAddr, AdminAddr: s.AdminAddr, Admin: s.Admin(),
		IngressTLS: s.ingressTLS(), IngressClientCA: s.IngressClientCA, IngressClientClaims: s.IngressClientClaims, TCP: s.TCP.listeners(),
		Plans: s.plans(), PlansFromFleet: s.plansFromFleet(),
		Links:      s.Links,
		Strategies: routing.StrategiesConfig{ByService: s.Strategies.Value, SessionCookies: s.SessionCookies.Value},
		Selection:  s.Selection, Forwarding: s.forwarding(), Upstream: s.Upstream,
		Rules: s.rules(), AllowClearText: s.AllowClearText, ServiceTLS: routing.ServiceTLSConfig{Roots: roots, Names: s.ServiceServerNames.Value},
		SharedKey: s.SharedKey, SharedKeyFile: s.SharedKeyFile, Insecure: s.Insecure,
		ProgressTimeout: s.ProgressTimeout,
		Clients:         s.Clients,
		Circuit:         s.Circuit.config(),
		Tracing:         s.Tracing,
		RequestLog:      s.RequestLog, Explanations: s.Explanations,
		Requests: s.requests(),
		Logger:   logger, Registry: reg, Reloaded: s.reloaded,
	}
	cfg.Links.DrainDelay = cmp.Or(s.Links.DrainDelay, -1) // there zero means the default, here no delay
	return cfg, nil
}

// ingressTLS returns the pairs of certificates and keys.
func (s *Settings) ingressTLS() []clienttls.Pair {
	var pairs []clienttls.Pair
	for i := range min(len(s.IngressTLSCerts), len(s.IngressTLSKeys)) { // the settings were checked when they were loaded
		pairs = append(pairs, clienttls.Pair{Certificate: s.IngressTLSCerts[i], Key: s.IngressTLSKeys[i]})
	}
	return pairs
}

// reloaded returns what a reload applies.
func (s *Settings) reloaded() Reloaded {
	return Reloaded{Requests: s.requests(), Plans: s.plans(), PlansFromFleet: s.plansFromFleet()}
}

// requests returns Requests with the fields that other fields of the settings determine.
func (s *Settings) requests() Requests {
	r := s.Requests
	r.Keys = s.KeySource.Value
	r.AttemptTimeout, r.AttemptShare = s.AttemptTimeout.of(r.Timeout), float64(s.AttemptTimeout.percent)/100
	r.Policies = s.Policies.policies()
	r.MaxInFlightPerClient = s.MaxInFlightPerClient.of(r.MaxInFlight)
	r.TrustedProxies, r.ProxyProtocolFrom = s.TrustedProxies.Value, s.ProxyProtocolFrom.Value
	r.DrainTimeout, r.SessionDrainTimeout = s.DrainTimeout, s.SessionDrain()
	return r
}
