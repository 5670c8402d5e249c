package advertise

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// anything admits whatever a record may hold.
func anything() *admission {
	return newAdmission(Rules{MaxServices: 1 << 30, MaxServicesPerRecord: MaxServices, NewServicesPerMinute: 1 << 30}, nil)
}

func TestAMemberOffersAddressesOfItsOwnHostOnly(t *testing.T) {
	proven := Rules{Proven: true}
	allowed := Rules{Proven: true, AllowedAddrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	for _, test := range []struct {
		rules            Rules
		address, gossip  string
		reason, anywhere string // the second: under allowed
	}{
		{proven, "10.0.0.1:80", "10.0.0.1:7401", "", ""},
		{proven, "[::ffff:10.0.0.1]:80", "10.0.0.1:7401", "", ""},
		{proven, "10.0.0.1:80", "[::ffff:10.0.0.1]:7401", "", ""},
		{proven, "[2001:db8::1]:80", "[2001:db8::1]:7401", "", ""},
		{proven, "10.0.0.2:80", "10.0.0.1:7401", refusedForeignHost, ""},
		{proven, "10.9.0.2:80", "10.0.0.1:7401", refusedForeignHost, ""},
		{proven, "127.0.0.1:7430", "10.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "[::1]:7430", "10.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "[::ffff:127.0.0.1]:7430", "10.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "169.254.169.254:80", "10.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "[fe80::1%eth0]:80", "10.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "0.0.0.0:80", "10.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "[::]:80", "127.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "224.0.0.1:80", "127.0.0.1:7401", refusedLocalHost, refusedLocalHost},
		{proven, "127.0.0.1:80", "127.0.0.1:7401", "", ""},
		{proven, "127.0.0.2:80", "127.0.0.1:7401", refusedForeignHost, ""},
		{proven, "localhost:80", "127.0.0.1:7401", refusedHostName, refusedHostName},
		{proven, "worker.example:80", "10.0.0.1:7401", refusedHostName, refusedHostName},
		{proven, "010.0.0.1:80", "10.0.0.1:7401", refusedHostName, refusedHostName},
		{proven, "10.0.0.1:80", "", refusedForeignHost, refusedForeignHost},
	} {
		for rules, want := range map[*Rules]string{&test.rules: test.reason, &allowed: test.anywhere, {}: ""} {
			err, reason := rules.checkAddress(test.address, test.gossip), ""
			var bad *invalid
			if errors.As(err, &bad) {
				reason = bad.reason
			}
			if reason != want {
				t.Errorf("%s of a member at %s under %+v: %q (%v), want %q", test.address, test.gossip, *rules, reason, err, want)
			}
		}
	}
}

// ruled is joined under rules, with what was reported.
type ruled struct {
	*joined
	told []Refusal
}

func newRuled(t tester, rules Rules) *ruled {
	t.Helper()
	if err := rules.validate(); err != nil {
		t.Fatal(err)
	}
	r := &ruled{joined: newJoined(t)}
	r.builder = newViewBuilder(r.store, newAdmission(rules, func(x Refusal) { r.told = append(r.told, x) }))
	return r
}

func numbered(prefix string, from, to int) (services []Service) {
	for i := from; i < to; i++ {
		services = append(services, offered(fmt.Sprintf("%s%05d", prefix, i), 1))
	}
	return services
}

func TestARefusedAddressIsNoEndpointAndIsReportedOncePerRecord(t *testing.T) {
	r := newRuled(t, Rules{Proven: true})
	r.store.setMembers(membership.NewSnapshot(1, "", []membership.Member{{ID: "w1", Epoch: 1, Role: identity.RoleWorker, GossipAddr: "10.0.0.1:7401"}}), r.now)
	good := Service{Name: "good", Address: "10.0.0.1:80"}
	v := r.hears("w1", 1, 1, good, Service{Name: "admin", Address: "127.0.0.1:7430"}, Service{Name: "other", Address: "127.0.0.1:7431"})
	if v.known("admin") || v.EndpointCount() != 1 || len(v.Refused()) != 1 {
		t.Errorf("%d endpoints, admin is %v; refused %+v", v.EndpointCount(), v.Endpoints("admin"), v.Refused())
	}
	r.builder.touch("w1")
	r.publish()
	if len(r.told) != 1 || r.told[0].Count != 2 || r.told[0].Worker != "w1" || r.told[0].Reason != refusedLocalHost {
		t.Errorf("told %+v, want both in one line", r.told)
	}
	if v = r.hears("w1", 1, 2, good); len(v.Refused()) != 0 || len(r.builder.rules.refused) != 0 {
		t.Errorf("withdrawn, and still refused: %+v", v.Refused())
	}
}

func TestACertificateThatNamesServicesIsHeldAgainstTheOffer(t *testing.T) {
	names := func(names ...string) string {
		n, err := identity.ParseServiceNames(names...)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		rules   Rules
		names   string
		service string
		reason  string
	}{
		{Rules{Proven: true}, names("echo"), "echo", ""},
		{Rules{Proven: true}, names("*"), "echo", ""},
		{Rules{Proven: true}, names("e*"), "echo", ""},
		{Rules{Proven: true}, names("other"), "echo", refusedName},
		{Rules{Proven: true}, names("echo-*", "ech", "Echo"), "echo", refusedName},
		{Rules{Proven: true}, "", "echo", ""},
		{Rules{Proven: true, RequireServiceNames: true}, "", "echo", refusedNoNames},
		{Rules{Proven: true, RequireServiceNames: true}, names("echo"), "echo", ""},
		{Rules{Proven: true, RequireServiceNames: true}, names("other"), "echo", refusedName},
		{Rules{RequireServiceNames: true}, "", "echo", ""}, // nothing is proven
		{Rules{}, names("other"), "echo", ""},
	} {
		err, reason := c.rules.checkServiceName(c.service, c.names), ""
		var bad *invalid
		if errors.As(err, &bad) {
			reason = bad.reason
		}
		if reason != c.reason {
			t.Errorf("%s with a certificate for %q under %+v: %v, want %q", c.service, c.names, c.rules, err, c.reason)
		}
	}
}

// A worker that is known keeps its endpoints while its certificate is replaced by one with names,
// loses those that the names leave out, and gets them back with another certificate.
func TestOffersFollowTheCertificateOfTheirWorker(t *testing.T) {
	r := newRuled(t, Rules{Proven: true})
	named := func(names string) *View {
		m := membership.Member{ID: "w1", Epoch: 1, Role: identity.RoleWorker, GossipAddr: "10.0.0.1:7401", ServiceNames: names}
		for _, id := range r.store.setMembers(membership.NewSnapshot(1, "", []membership.Member{m}), r.now) {
			r.builder.touch(id)
		}
		return r.publish()
	}
	named("")
	before := r.hears("w1", 1, 1, Service{Name: "a", Address: "10.0.0.1:80"}, Service{Name: "b", Address: "10.0.0.1:81"})
	if before.EndpointCount() != 2 {
		t.Fatalf("%d endpoints without names, want 2: %+v", before.EndpointCount(), before.Refused())
	}
	after := named("a,b")
	if after.Endpoints("a") != before.Endpoints("a") || after.Endpoints("b") != before.Endpoints("b") || len(r.told) != 0 {
		t.Errorf("a certificate that names them changes the endpoints; told %+v", r.told)
	}
	v := named("b")
	if v.Endpoints("a").Of("w1") != nil || v.Endpoints("b") != before.Endpoints("b") {
		t.Errorf("a: %v, b: %v", v.Endpoints("a"), v.Endpoints("b"))
	}
	if refused := v.Refused(); len(refused) != 1 || refused[0].Reason != refusedName || refused[0].Count != 1 || !slices.Equal(refused[0].Services, []string{"a"}) || len(r.told) != 1 {
		t.Errorf("refused %+v, told %+v", refused, r.told)
	}
	if v = named("*"); v.EndpointCount() != 2 || len(v.Refused()) != 0 {
		t.Errorf("%d endpoints with names of all, refused %+v", v.EndpointCount(), v.Refused())
	}
}

func TestARefusedNameTakesNoPlaceAmongTheServices(t *testing.T) {
	r := newRuled(t, Rules{Proven: true, MaxServices: 3, MaxServicesPerRecord: 100})
	liar := membership.Member{ID: "liar", Epoch: 1, Role: identity.RoleWorker, GossipAddr: "10.0.0.1:7401", ServiceNames: "own"}
	r.store.setMembers(membership.NewSnapshot(1, "", []membership.Member{liar}), r.now)
	v := r.hears("liar", 1, 1, append(numbered("x", 0, 50), Service{Name: "own", Address: "10.0.0.1:80"})...)
	if refused := v.Refused(); len(refused) != 1 || refused[0].Count != 50 || len(refused[0].Services) != maxRefusedServices {
		t.Errorf("refused %+v", refused)
	}
	if v.serviceCount() != 1 || !v.known("own") || v.known("x00000") {
		t.Errorf("%d services are known: want own alone", v.serviceCount())
	}
}

// Every name of a service can stand in a certificate, and nothing else.
func TestCertificatesNameExactlyTheServicesThatThereCanBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9._-]{0,65}`), rapid.StringN(0, 8, 16)).Draw(t, "name")
		if strings.HasSuffix(name, "*") {
			return // a prefix
		}
		_, err := identity.ParseServiceNames(name)
		if valid := affinity.ValidateService(name) == nil; valid != (err == nil) {
			t.Fatalf("%q is the name of a service: %v; in a certificate: %v", name, valid, err)
		}
	})
}

func TestARecordOfTooManyServicesOffersNothing(t *testing.T) {
	r := newRuled(t, Rules{MaxServicesPerRecord: 3})
	r.lives("w1", 1)
	if v := r.hears("w1", 1, 1, numbered("s", 0, 3)...); v.EndpointCount() != 3 {
		t.Errorf("%d endpoints of 3", v.EndpointCount())
	}
	v := r.hears("w1", 1, 2, numbered("s", 0, 4)...)
	if v.EndpointCount() != 0 || len(r.told) != 1 || r.told[0].Count != 4 || r.told[0].Reason != refusedRecord {
		t.Errorf("%d endpoints of 4, told %+v", v.EndpointCount(), r.told)
	}
}

func TestNewNamesAreTakenInAtTheirRate(t *testing.T) {
	r := newRuled(t, Rules{MaxServicesPerRecord: 100, NewServicesPerMinute: 30})
	r.lives("w1", 1)
	r.lives("w2", 1)
	r.hears("w1", 1, 1, numbered("a", 0, 100)...)
	v := r.hears("w1", 1, 2, numbered("b", 0, 100)...)
	if got := v.EndpointCount(); got != 0 || len(r.told) != 1 || r.told[0].Reason != refusedNewNames || r.told[0].Count != 100 {
		t.Errorf("%d endpoints of 100 more names at once, told %+v", got, r.told)
	}
	// Others, and names that are known, are not concerned.
	if v = r.hears("w2", 1, 1, append(numbered("a", 0, 50), numbered("c", 0, 50)...)...); v.EndpointCount() != 100 {
		t.Errorf("%d endpoints of another worker, want 100", v.EndpointCount())
	}
	for minute := 1; minute <= 4; minute++ {
		r.now = r.now.Add(time.Minute)
		if !r.builder.retry(r.now) && minute < 4 {
			t.Fatalf("after %d minutes nothing is tried again", minute)
		}
		if got, want := r.publish().EndpointCount(), 100+min(100, 30*minute); got != want {
			t.Errorf("after %d minutes %d endpoints, want %d", minute, got, want)
		}
	}
	if len(r.told) != 1 || r.builder.retry(r.now.Add(time.Hour)) || len(r.builder.rules.tokens) != 0 {
		t.Errorf("told %+v, %d rates are kept", r.told, len(r.builder.rules.tokens))
	}
}

func TestWhereThereAreEnoughNamesTheKnownOnesStayAndOthersWait(t *testing.T) {
	r := newRuled(t, Rules{MaxServices: 5})
	r.lives("w1", 1)
	r.lives("w2", 1)
	r.hears("w1", 1, 1, numbered("a", 0, 4)...)
	v := r.hears("w2", 1, 1, append(numbered("a", 0, 2), numbered("b", 0, 3)...)...)
	if v.serviceCount() != 5 || v.EndpointCount() != 7 || !v.known("a00003") || len(r.told) != 1 || r.told[0].Count != 2 || r.told[0].Reason != refusedServices {
		t.Errorf("%d services, %d endpoints, told %+v", v.serviceCount(), v.EndpointCount(), r.told)
	}
	if !v.full {
		t.Error("services are refused, and the view does not say that it is full")
	}
	r.hears("w1", 1, 2) // the names that vanish make room
	if !r.builder.retry(r.now) {
		t.Error("nothing is tried again")
	}
	if v = r.publish(); v.serviceCount() != 5 || v.EndpointCount() != 5 || len(v.Refused()) != 0 || v.full {
		t.Errorf("%v, %d endpoints, want those of w2; refused %+v", slices.Collect(v.Services()), v.EndpointCount(), v.Refused())
	}
}

// Members that hear the same records at the same time must know the same names, whichever records a
// map yields first.
func TestAtTheLimitOfNamesMembersAdmitThoseOfTheFirstWorkers(t *testing.T) {
	for range 20 {
		r := newRuled(t, Rules{MaxServices: 3})
		r.lives("w0", 1)
		r.hears("w0", 1, 1, numbered("a", 0, 3)...)
		for i := 1; i <= 5; i++ {
			id := fmt.Sprintf("w%d", i)
			r.lives(id, 1)
			r.hears(id, 1, 1, numbered(id, 0, 1)...)
		}
		r.hears("w0", 1, 2) // the names that vanish make room
		r.builder.retry(r.now)
		if got, want := slices.Sorted(r.publish().Services()), []string{"w100000", "w200000", "w300000"}; !slices.Equal(got, want) {
			t.Fatalf("known are %v, want %v", got, want)
		}
	}
}

// The reference forgets nothing and counts anew each time.
func TestNoOfferPassesABoundAndNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := Rules{MaxServices: rapid.IntRange(1, 8).Draw(t, "names"), MaxServicesPerRecord: rapid.IntRange(1, 6).Draw(t, "per record"),
			NewServicesPerMinute: rapid.IntRange(1, 10).Draw(t, "a minute")}
		r := newRuled(t, rules)
		latest, sequence := map[string][]Service{}, uint64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			worker := fmt.Sprint("w", rapid.IntRange(1, 3).Draw(t, "worker"))
			sequence++
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				r.lives(worker, uint64(rapid.IntRange(0, 1).Draw(t, "epoch")))
			case 1:
				r.now = r.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
				r.builder.retry(r.now)
				r.publish()
			default:
				from := rapid.IntRange(0, 12).Draw(t, "from")
				latest[worker] = numbered("s", from, from+rapid.IntRange(0, 7).Draw(t, "services"))
				r.hears(worker, 1, sequence, latest[worker]...)
			}
			v, endpoints, waiting := r.publish(), 0, map[string]int{}
			if v.serviceCount() > rules.MaxServices {
				t.Fatalf("%d services are known, more than %d", v.serviceCount(), rules.MaxServices)
			}
			for _, refusal := range v.Refused() {
				waiting[refusal.Worker] += refusal.Count
			}
			for worker, services := range latest {
				shown := 0
				for _, s := range services {
					if _, there := v.Endpoint(s.Name, worker); there {
						shown++
					}
				}
				endpoints += shown
				if _, alive := r.epochs[worker]; alive && shown+waiting[worker] != len(services) || !alive && shown+waiting[worker] != 0 {
					t.Fatalf("%s offers %d services: %d are endpoints and %d refused", worker, len(services), shown, waiting[worker])
				}
				if len(services) > rules.MaxServicesPerRecord && shown > 0 {
					t.Fatalf("%d endpoints of a record of %d services", shown, len(services))
				}
			}
			if endpoints != v.EndpointCount() {
				t.Fatalf("%d endpoints, %d belong to a record", v.EndpointCount(), endpoints)
			}
		}
	})
}

func TestRulesThatCannotHoldAreRefused(t *testing.T) {
	for _, rules := range []Rules{{MaxServices: -1}, {MaxServicesPerRecord: MaxServices + 1}, {NewServicesPerMinute: -1}} {
		if _, err := New(Config{Gossip: newStill("r1"), Rules: rules}); err == nil {
			t.Errorf("%+v is accepted", rules)
		}
	}
	c, err := New(Config{Gossip: newStill("r1"), Rules: Rules{MaxServicesPerRecord: 2}})
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.Gossip = &still{} // before its first snapshot
	if err := c.Offer(numbered("s", 0, 3)); err == nil || !strings.Contains(err.Error(), "--max-services-per-record") {
		t.Errorf("an offer that others refuse: %v", err)
	}
}
