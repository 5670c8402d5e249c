package process

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Settings are the settings that relay and worker have in common.
type Settings struct {
	Cluster, Environment string
	ID                   string
	Role                 identity.Role
	Datacenter, Region   string
	GossipAddr           string
	AdvertiseAddr        string
	privateIP            func() (string, error) // for tests; nil is that of this host
	// Gossipless reports whether this member does not listen for gossip; nil: it does.
	Gossipless     func() bool
	AdminAddr      string
	Join           []string
	AdminHosts     []string
	AdminTokenFile string
	AdminTLS       bool
	AdminOperators []string
	Pprof          bool
	LogLevel       string
	LogFormat      string
	Insecure       bool

	TLSCert, TLSKey, TLSCA string
	TLSDenyFile            string
	IdentityTemplate       string
	GossipKeyFile          string
	ServiceCA              string

	// The limits for offers of members; see Rules.
	EndpointAllowedCIDRs settings.List[[]netip.Prefix]
	MaxServicesPerRecord int

	DNSServers, DNSAllowedCIDRs      []string
	DNSBlockPrivate, DNSRejectFlux   bool
	DNSTimeout                       time.Duration
	DNSCacheTTL, DNSNegativeCacheTTL time.Duration

	MaxMembers, MaxNewMembers int

	// The time limits of a stop for requests and for sessions; see DeclareDrain.
	DrainTimeout, SessionDrainTimeout time.Duration
}

// DefaultSessionDrain is the default time for sessions when a member stops: long enough to
// spread the reconnects of the clients, short enough for a rolling restart.
const DefaultSessionDrain = 5 * time.Minute

// Default ports, one for each listener of each binary.
const (
	RelayGossipPort  = "7400"
	WorkerGossipPort = "7401"
	IngressPort      = "7410"
	PeerPort         = "7420"
	RelayAdminPort   = "7430"
	WorkerAdminPort  = "7431"
)

// DefaultSettings are the defaults of a member of the given role on this host. Every
// listener is on loopback unless the operator sets another address.
func DefaultSettings(role identity.Role) Settings {
	gossip, admin := RelayGossipPort, RelayAdminPort
	if role == identity.RoleWorker {
		gossip, admin = WorkerGossipPort, WorkerAdminPort
	}
	return Settings{
		Role:       role,
		GossipAddr: net.JoinHostPort("127.0.0.1", gossip), AdminAddr: net.JoinHostPort("127.0.0.1", admin),
		AdminOperators: []string{"operator"},
		LogLevel:       "info", LogFormat: "auto",
		DNSTimeout: 2 * time.Second, DNSCacheTTL: 30 * time.Second, DNSNegativeCacheTTL: 30 * time.Second,
		MaxMembers: membership.DefaultMaxMembers, MaxNewMembers: membership.DefaultMaxMembers,
		MaxServicesPerRecord: advertise.DefaultMaxServicesPerRecord,
		EndpointAllowedCIDRs: settings.NewList(parseEndpointNetworks),
		DrainTimeout:         wire.DrainTimeout,
	}
}

// DeclareDrain adds the time limits of a stop to set, in the given group: the group for
// requests of a relay, or for requests through the sidecar of a worker.
func (s *Settings) DeclareDrain(set *settings.Set, group, stop string, reloadable bool) {
	settings.Duration(set, &s.DrainTimeout, settings.Spec{Name: "drain-timeout", Group: group, Reloadable: reloadable, Usage: "time for requests in flight " + stop}, settings.AtLeast(time.Duration(0)))
	settings.Duration(set, &s.SessionDrainTimeout, settings.Spec{Name: "session-drain-timeout", Group: group, Reloadable: reloadable, DefaultText: "5m, or drain-timeout if longer", Usage: "the same for tunnels, such as WebSockets, and for answers that have begun; those left after drain-timeout are ended one after the other until this is over; 0 is the default"}, settings.AtLeast(time.Duration(0)))
	set.Check(func() []settings.Problem {
		if s.SessionDrain() >= s.DrainTimeout {
			return nil
		}
		return []settings.Problem{{Setting: "session-drain-timeout", Related: []string{"drain-timeout"},
			Reason: "tunnels and streams would have less time than requests", Allowed: "0 for the default, or at least --drain-timeout, " + s.DrainTimeout.String()}}
	})
}

// SessionDrain returns SessionDrainTimeout or its default.
func (s *Settings) SessionDrain() time.Duration {
	return cmp.Or(s.SessionDrainTimeout, max(DefaultSessionDrain, s.DrainTimeout))
}

// Declare adds the common settings to set.
func (s *Settings) Declare(set *settings.Set) {
	const naming, network, operation = "Identity", "Network", "Operation"
	settings.String(set, &s.Cluster, settings.Spec{Name: "cluster", Short: "name of the cluster, such as shop; needs none on loopback", Group: naming, Required: true, Fallback: s.localName, FallbackFrom: gossipSetting, DefaultText: localDefault,
		Usage: "cluster this member belongs to; members of another are refused"})
	settings.String(set, &s.Environment, settings.Spec{Name: "environment", Short: "name of the environment, such as prod; needs none on loopback", Group: naming, Required: true, Fallback: s.localName, FallbackFrom: gossipSetting, DefaultText: localDefault,
		Usage: "environment this member belongs to; members of another are refused"})
	settings.String(set, &s.ID, settings.Spec{Name: "id", Short: "stable name of this member, unique in the cluster", Group: naming, DefaultText: "host name and role",
		Usage: "stable name of this member, unique in the cluster; it survives restarts"})
	settings.String(set, &s.Datacenter, settings.Spec{Name: "datacenter", Group: naming, Usage: "datacenter this member runs in"})
	settings.String(set, &s.Region, settings.Spec{Name: "region", Group: naming, Usage: "region this member runs in"})
	settings.Address(set, &s.GossipAddr, settings.Spec{Name: gossipSetting, Short: "address for gossip, TCP and UDP", Group: network, Placeholder: "IP:PORT",
		Usage: "address for gossip, TCP and UDP"})
	settings.String(set, &s.AdvertiseAddr, settings.Spec{Name: "advertise-addr", Short: "gossip address for the others, if not gossip-addr", Group: network, Placeholder: "HOST[:PORT]", DefaultText: "the gossip address, or a private address of this host if gossip listens on every interface",
		Usage: "gossip address the other members reach this one at; a name is looked up at the start; without a port it has that of the gossip address"})
	settings.AddressOrSocket(set, &s.AdminAddr, settings.Spec{Name: "admin-addr", Group: network, Placeholder: "IP:PORT|unix:PATH",
		Usage: "address of the admin API; a unix socket is for the user of this process alone"})
	join := settings.Spec{Name: "join", Group: network, Placeholder: "HOST[:PORT]", Short: "gossip address of any member, or a DNS name; repeatable",
		Usage: "where to find the cluster: gossip address of any member, dns+name[:port] or srv+_gossip._udp.name; may be repeated"}
	if s.Role == identity.RoleWorker {
		join.Fallback, join.FallbackFrom, join.DefaultText = s.localRelay, gossipSetting, "where gossip listens on loopback, port "+RelayGossipPort+" of loopback; otherwise none"
	}
	settings.Strings(set, &s.Join, join)
	const dns = "Discovery"
	positive := settings.Above(time.Duration(0))
	settings.Strings(set, &s.DNSServers, settings.Spec{Name: "dns-server", Group: dns, Placeholder: "IP[:PORT]", DefaultText: "those of this host",
		Usage: "name server for seeds, asked in this order; may be repeated"})
	settings.Duration(set, &s.DNSTimeout, settings.Spec{Name: "dns-timeout", Group: dns, Usage: "time for one query to one name server"}, positive)
	settings.Duration(set, &s.DNSCacheTTL, settings.Spec{Name: "dns-cache-ttl", Group: dns, Usage: "TTL for answers without one: 1s at least, 5m at most"}, positive)
	settings.Duration(set, &s.DNSNegativeCacheTTL, settings.Spec{Name: "negative-cache-ttl", Group: dns, Usage: "how long a name that a server denied or failed at is not asked for again; the zone's SOA record can shorten it"}, positive)
	settings.Strings(set, &s.DNSAllowedCIDRs, settings.Spec{Name: "dns-allowed-cidr", Group: dns, Placeholder: "NETWORK",
		Usage: "only use addresses of this network from name servers; may be repeated"})
	settings.Bool(set, &s.DNSBlockPrivate, settings.Spec{Name: "dns-block-private-for-public", Group: dns,
		Usage: "drop private addresses that name servers give for public names"})
	settings.Bool(set, &s.DNSRejectFlux, settings.Spec{Name: "dns-reject-flux", Group: dns,
		Usage: "keep the last answer for a name whose addresses change more than 5 times in 5 minutes"})
	settings.Enum(set, &s.LogLevel, settings.Spec{Name: "log-level", Group: operation, Usage: "least level that is logged"}, LogLevels()...)
	settings.Enum(set, &s.LogFormat, settings.Spec{Name: "log-format", Group: operation, Usage: "form of the log"}, LogFormats()...)
	settings.Bool(set, &s.Pprof, settings.Spec{Name: "pprof", Group: operation, Usage: "serve profiles of the Go runtime on the admin address, below /debug/pprof/"})
	const security = "Security"
	settings.Strings(set, &s.AdminHosts, settings.Spec{Name: "admin-host", Group: security, Placeholder: "NAME",
		Usage: "host name by which the admin API may be asked without a token, besides IP addresses and localhost; with a token any host name is accepted; may be repeated"})
	settings.String(set, &s.AdminTokenFile, settings.Spec{Name: "admin-token-file", Group: security, Placeholder: "FILE",
		Usage: "tokens that open the admin API, one a line; they are read again when they change"})
	settings.Bool(set, &s.AdminTLS, settings.Spec{Name: "admin-tls", Group: security,
		Usage: "serve the admin API over TLS with this member's certificate, to operators and to holders of a token"})
	settings.Strings(set, &s.AdminOperators, settings.Spec{Name: "admin-operator", Group: security, Placeholder: "NODE",
		Usage: "with --admin-tls: node in a client certificate that may use the admin API; may be repeated"})
	settings.String(set, &s.TLSCert, settings.Spec{Name: "tls-cert", Short: "certificate of this member, PEM", Group: security, Placeholder: "FILE",
		Usage: "this member's certificate, PEM; it is read again when it changes"})
	settings.String(set, &s.TLSKey, settings.Spec{Name: "tls-key", Short: "private key of the certificate, PEM", Group: security, Placeholder: "FILE",
		Usage: "private key of the certificate, PEM"})
	settings.String(set, &s.TLSCA, settings.Spec{Name: "tls-ca", Short: "authorities of the members' certificates, PEM", Group: security, Placeholder: "FILE",
		Usage: "authorities that certificates of members must come from, PEM"})
	settings.String(set, &s.TLSDenyFile, settings.Spec{Name: "tls-deny-file", Group: security, Placeholder: "FILE",
		Usage: "certificates that no longer count, one a line: serial HEX or node ID; read again when it changes"})
	settings.String(set, &s.IdentityTemplate, settings.Spec{Name: "identity-template", Group: security, Placeholder: "SPIFFE-ID",
		Usage: "where SPIFFE IDs of members have their names, such as spiffe://shop.test/{environment}/{cluster}/{role}/{node}, for certificates without names ringway://; restart to change it; use the same value on all members"})
	settings.String(set, &s.GossipKeyFile, settings.Spec{Name: "gossip-key-file", Short: "gossip keys, one a line, the one in use first", Group: security, Placeholder: "FILE",
		Usage: "gossip keys, one a line, the one in use first; rotations are written back to it"})
	settings.String(set, &s.ServiceCA, settings.Spec{Name: "service-ca", Group: security, Placeholder: "FILE", DefaultText: "those of this host",
		Usage: "authorities that certificates of services with protocol=h2 must come from, PEM, where this member itself connects to them"})
	settings.Int(set, &s.MaxMembers, settings.Spec{Name: "max-members", Group: security,
		Usage: "most members in the cluster; more are refused and counted"}, settings.AtLeast(2))
	settings.Int(set, &s.MaxNewMembers, settings.Spec{Name: "max-new-members", Group: security,
		Usage: "members a minute that one member may announce before they are proven; used with certificates"}, settings.AtLeast(1))
	settings.Parsed(set, &s.EndpointAllowedCIDRs, settings.Spec{Name: "endpoint-allowed-cidr", Group: security, Placeholder: "NETWORK",
		Usage: "with certificates: network in which workers may offer services besides their own host; use the same value on all members; may be repeated"})
	settings.Int(set, &s.MaxServicesPerRecord, settings.Spec{Name: "max-services-per-record", Group: security,
		Usage: "services that one worker may offer; nothing is used of a worker that offers more; use the same value on all members"}, settings.Between(1, advertise.MaxServices))
	settings.Bool(set, &s.Insecure, settings.Spec{Name: "insecure", Short: "allow addresses that other hosts reach without protection", Group: security,
		Usage: "allow gossip, peer and admin addresses that other hosts can reach, with nothing to protect them"})
	set.Check(func() []settings.Problem { return s.checkNames() })
	set.Check(func() []settings.Problem { return s.checkAddresses() })
	set.Check(func() []settings.Problem { return s.checkCertificate() })
	set.Check(func() []settings.Problem {
		var problems []settings.Problem
		for _, seed := range s.Join {
			if _, err := discovery.ParseSeed(seed, membership.DefaultGossipPort); err != nil {
				problems = append(problems, settings.Problem{Setting: "join", Value: seed, Reason: err.Error()})
			}
		}
		for _, cidr := range s.DNSAllowedCIDRs {
			if _, err := netip.ParsePrefix(cidr); err != nil {
				problems = append(problems, settings.Problem{Setting: "dns-allowed-cidr", Value: cidr, Reason: "not a network", Allowed: "a network such as 10.0.0.0/8"})
			}
		}
		return problems
	})
	set.Check(func() []settings.Problem {
		if s.Gossipless != nil && s.Gossipless() {
			return nil
		}
		return s.CheckExposed(gossipSetting, s.GossipAddr)
	})
	set.Check(func() []settings.Problem { return s.checkAdmin() })
	set.Check(func() []settings.Problem {
		if _, err := s.ServiceRoots(); err != nil {
			return []settings.Problem{{Setting: "service-ca", Value: s.ServiceCA, Reason: err.Error(), Allowed: "a PEM file of certificates"}}
		}
		return nil
	})
}

// ServiceRoots reads ServiceCA, which may be the certificate of a service itself; nil without it,
// for the authorities of this host.
func (s *Settings) ServiceRoots() (*x509.CertPool, error) {
	if s.ServiceCA == "" {
		return nil, nil
	}
	data, err := keyfile.Read(s.ServiceCA)
	if err != nil {
		return nil, err
	}
	certificates, err := keyfile.Certificates(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.ServiceCA, err)
	}
	roots := x509.NewCertPool()
	for _, one := range certificates {
		roots.AddCert(one)
	}
	return roots, nil
}

// checkNames finds names that membership would refuse later, so that the error has the name
// of the flag.
func (s *Settings) checkNames() []settings.Problem {
	var problems []settings.Problem
	for _, f := range []struct{ flag, value string }{
		{"cluster", s.Cluster}, {"environment", s.Environment}, {"id", s.ID}, {"datacenter", s.Datacenter}, {"region", s.Region},
	} {
		if f.value != "" && identity.CheckName(f.value) != nil {
			problems = append(problems, settings.Problem{Setting: f.flag, Reason: "not a name", Allowed: identity.NameRule})
		}
	}
	return problems
}

// checkAddresses finds addresses that membership would refuse later, so that the error has
// the name of the flag.
func (s *Settings) checkAddresses() []settings.Problem {
	var problems []settings.Problem
	bind, err := ListenAddr(s.GossipAddr)
	if err != nil {
		problems = append(problems, settings.Problem{Setting: gossipSetting, Reason: err.Error(), Allowed: "IP:port"})
	} else if bind.Addr().IsUnspecified() && bind.Port() == 0 && s.AdvertiseAddr == "" {
		problems = append(problems, settings.Problem{Setting: "advertise-addr", Related: []string{"gossip-addr"},
			Reason: "gossip listens on every interface and at any port, so the other members need an address", Allowed: "the IP:port that the other members reach this one at"})
	}
	if s.AdvertiseAddr != "" {
		if _, err := s.parseAdvertised(bind); err != nil {
			problems = append(problems, settings.Problem{Setting: "advertise-addr", Reason: err.Error(), Allowed: "the address or name that the other members reach this one at, with a port unless it is that of --gossip-addr"})
		}
	}
	return problems
}

// checkCertificate requires all three files or none, and a readable deny list.
func (s *Settings) checkCertificate() []settings.Problem {
	var problems []settings.Problem
	for _, f := range []struct{ flag, value string }{{"tls-cert", s.TLSCert}, {"tls-key", s.TLSKey}, {"tls-ca", s.TLSCA}} {
		if f.value == "" && s.TLSCert+s.TLSKey+s.TLSCA != "" {
			problems = append(problems, settings.Problem{Setting: f.flag, Reason: "--tls-cert, --tls-key and --tls-ca go together", Allowed: "a PEM file"})
		}
	}
	switch {
	case s.TLSDenyFile == "":
	case s.TLSCert == "":
		problems = append(problems, settings.Problem{Setting: "tls-deny-file", Related: []string{"tls-cert"},
			Reason: "without certificates there are none to deny", Allowed: "a file, with --tls-cert, --tls-key and --tls-ca"})
	default:
		if err := identity.CheckDenyFile(s.TLSDenyFile); err != nil {
			problems = append(problems, settings.Problem{Setting: "tls-deny-file", Value: s.TLSDenyFile, Reason: err.Error(), Allowed: "lines `serial HEX` and `node ID`"})
		}
	}
	if err := identity.CheckTemplate(s.IdentityTemplate); err != nil {
		problems = append(problems, settings.Problem{Setting: "identity-template", Value: s.IdentityTemplate, Reason: err.Error(), Allowed: identity.TemplateRule})
	} else if s.IdentityTemplate != "" && s.TLSCert == "" {
		problems = append(problems, settings.Problem{Setting: "identity-template", Related: []string{"tls-cert"},
			Reason: "without certificates there are no names to read", Allowed: "a template, with --tls-cert, --tls-key and --tls-ca"})
	}
	return problems
}

// CheckExposed returns a problem for an address that other hosts can reach without
// protection, unless the operator allowed that.
func (s *Settings) CheckExposed(flag, addr string) []settings.Problem {
	a, err := ListenAddr(addr) // on an error the address is a name, which may resolve to any address
	if err == nil && a.Addr().IsLoopback() || s.Insecure || s.TLSCert != "" && s.GossipKeyFile != "" {
		return nil
	}
	return []settings.Problem{{Setting: flag, Related: []string{"insecure", "tls-cert", "gossip-key-file"},
		Reason: "other hosts can reach this address, and nothing protects it", Allowed: "a loopback address, or --tls-cert, --tls-key, --tls-ca and --gossip-key-file, or --insecure"}}
}

// checkAdmin returns a problem for an admin API that other hosts can reach without
// authentication: every caller could drain this process and read its state.
func (s *Settings) checkAdmin() []settings.Problem {
	var problems []settings.Problem
	if s.AdminTLS && s.TLSCert == "" {
		problems = append(problems, settings.Problem{Setting: "admin-tls", Related: []string{"tls-cert"}, Reason: "there is no certificate to serve with", Allowed: "true with --tls-cert, --tls-key and --tls-ca"})
	}
	for _, name := range s.AdminHosts {
		if strings.ContainsAny(name, ":/@[] ") {
			problems = append(problems, settings.Problem{Setting: "admin-host", Value: name, Reason: "not a host name", Allowed: "a name without port, such as relay-1.shop.internal"})
		}
	}
	a, err := ListenAddr(s.AdminAddr)
	if strings.HasPrefix(s.AdminAddr, settings.SocketPrefix) || err == nil && a.Addr().IsLoopback() || s.AdminTokenFile != "" || s.AdminTLS || s.Insecure {
		return problems
	}
	return append(problems, settings.Problem{Setting: "admin-addr", Related: []string{"admin-token-file", "admin-tls", "insecure"},
		Reason:  "other hosts can reach this address, and can then change this process",
		Allowed: "a loopback address, or unix:PATH, or --admin-token-file FILE with a token (head -c 32 /dev/urandom | base64), or --admin-tls, or --insecure"})
}

// Admin returns the configuration of the admin API.
func (s *Settings) Admin() AdminConfig {
	hosts := s.AdminHosts
	if host, _, err := net.SplitHostPort(s.AdminAddr); err == nil && host != "" && !strings.HasPrefix(s.AdminAddr, settings.SocketPrefix) {
		hosts = append([]string{host}, hosts...)
	}
	return AdminConfig{Hosts: hosts, TokenFile: s.AdminTokenFile, TLS: s.AdminTLS, Operators: s.AdminOperators, Pprof: s.Pprof}
}

// ListenAddr parses the address of a listener. An empty host means all interfaces.
func ListenAddr(addr string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not IP:port", addr)
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	a, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not IP:port: a name could mean several addresses", addr)
	}
	return a, nil
}

// Reachable returns the bound address as other members reach it: if bound to all
// interfaces, with the host of the advertised gossip address; empty for a unix socket,
// which other members cannot reach.
func Reachable(bound net.Addr, advertised string) string {
	if bound.Network() == "unix" {
		return ""
	}
	a, err := netip.ParseAddrPort(bound.String())
	if err != nil || !a.Addr().IsUnspecified() {
		return bound.String()
	}
	host, _, err := net.SplitHostPort(advertised)
	if err != nil {
		return bound.String()
	}
	return net.JoinHostPort(host, fmt.Sprint(a.Port()))
}

// FreeAddr is a loopback address with a port that the system chooses.
const FreeAddr = "127.0.0.1:0"

// CheckedMembership returns cfg with a free port and the advertised addresses of cfg, so
// that a check finds metadata that does not fit.
func CheckedMembership(cfg membership.Config) membership.Config {
	if a, err := netip.ParseAddrPort(cfg.BindAddr); err == nil && a.Port() != 0 {
		cfg.AdvertiseAddr = cmp.Or(cfg.AdvertiseAddr, cfg.BindAddr)
	}
	cfg.BindAddr = FreeAddr
	return cfg
}

// Rules returns the limits for offers of members. A relay sets its limits for the total; in
// other members these have their defaults.
func (s *Settings) Rules() advertise.Rules {
	return advertise.Rules{Proven: s.TLSCert != "", MaxServicesPerRecord: s.MaxServicesPerRecord, AllowedAddrs: s.EndpointAllowedCIDRs.Value}
}

// parseEndpointNetworks parses --endpoint-allowed-cidr.
func parseEndpointNetworks(items []string) (networks []netip.Prefix, problems []settings.Problem) {
	for _, cidr := range items {
		network, err := netip.ParsePrefix(cidr)
		if err != nil {
			problems = append(problems, settings.Problem{Setting: "endpoint-allowed-cidr", Value: cidr, Reason: "not a network", Allowed: "a network such as 10.0.0.0/8"})
			continue
		}
		networks = append(networks, network.Masked())
	}
	return networks, problems
}

// Membership returns the configuration of the node.
func (s *Settings) Membership(logger *slog.Logger, reg prometheus.Registerer) (membership.Config, error) {
	bind, err := ListenAddr(s.GossipAddr)
	if err != nil {
		return membership.Config{}, fmt.Errorf("--gossip-addr: %w", err)
	}
	id := s.ID
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			return membership.Config{}, fmt.Errorf("no --id given, and the host name is unknown: %w", err)
		}
		id = host + "-" + string(s.Role)
	}
	cfg := membership.Config{
		Cluster: s.Cluster, Environment: s.Environment, ID: id, Role: s.Role,
		Datacenter: s.Datacenter, Region: s.Region,
		BindAddr: bind.String(), Seeds: s.Join, Version: Version(),
		MaxMembers: s.MaxMembers, MaxNewMembers: s.MaxNewMembers,
		Logger: logger, Registerer: reg,
	}
	cfg.Resolver, err = discovery.NewResolver(discovery.ResolverConfig{
		Servers: s.DNSServers, Timeout: s.DNSTimeout, CacheTTL: s.DNSCacheTTL, NegativeTTL: s.DNSNegativeCacheTTL,
		AllowedCIDRs: s.DNSAllowedCIDRs, BlockPrivateForPublic: s.DNSBlockPrivate, RejectFlux: s.DNSRejectFlux,
		Logger: logger, Registerer: reg,
	})
	if err != nil {
		return cfg, err
	}
	if cfg.AdvertiseAddr, err = s.advertised(bind, cfg.Resolver); err != nil {
		return cfg, err
	}
	if s.AdvertiseAddr == "" && cfg.AdvertiseAddr != "" {
		logger.Info("gossip listens on every interface: this member announces a private address of this host; --advertise-addr sets another", "addr", cfg.AdvertiseAddr)
	}
	if s.TLSCert != "" {
		cfg.Identity, err = identity.NewSource(identity.Files{Certificate: s.TLSCert, Key: s.TLSKey, Authorities: s.TLSCA, Denied: s.TLSDenyFile},
			identity.SourceConfig{Logger: logger, Registerer: reg, Template: s.IdentityTemplate})
		if err != nil {
			return cfg, err
		}
	}
	if s.GossipKeyFile != "" {
		if cfg.Keyring, err = membership.OpenKeyring(s.GossipKeyFile); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// Banner returns the rows of the start banner that every member has.
func (s *Settings) Banner() []slog.Attr {
	security := "certificates and gossip keys"
	a, err := ListenAddr(s.GossipAddr)
	switch {
	case s.TLSCert != "" && s.GossipKeyFile != "":
	case s.TLSCert != "":
		security = "certificates; packets in clear text"
	case s.GossipKeyFile != "":
		security = "gossip keys; no certificates"
	case err == nil && a.Addr().IsLoopback():
		security = "none; loopback only"
	default:
		security = "NONE: --insecure"
	}
	return []slog.Attr{
		slog.String("cluster", s.Cluster), slog.String("environment", s.Environment), slog.String("role", string(s.Role)),
		slog.String("gossip", s.GossipAddr), slog.String("admin", s.AdminAddr), slog.Any("join", s.Join), slog.String("security", security),
	}
}
