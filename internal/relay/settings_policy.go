package relay

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/settings"
)

// policySettings are the operator's policies of services.
type policySettings struct {
	Flags settings.List[ingress.Policies] // --service-policy
	File  policyFile                      // --service-policy-file
}

func newPolicySettings() policySettings {
	return policySettings{Flags: settings.NewList(parsePolicies), File: policyFile{policies: newPolicies()}}
}

// policyFile is a file of policies, as it was read when the settings were loaded: a reload
// applies what was checked.
type policyFile struct {
	path, content string
	policies      ingress.Policies
	err           error // joins all problems of the content
}

// everyService stands for all services in a policyFile. No service can have this name.
const everyService = "*"

func (p *policySettings) declare(set *settings.Set, group string) {
	const keys = "request-timeout, attempt-timeout, progress-timeout, slots, canary (VERSION:N%, the share of the requests to a service that its workers of a version get), cookie-domain, cookie-path, cookie-same-site (lax, strict, none) and cookie-lifetime of the session cookie, and retry, which is never, connect (only what was not sent is repeated), idempotent, or always, for a service only: its requests may run more than once, whatever their method"
	settings.Parsed(set, &p.Flags, settings.Spec{Name: "service-policy", Group: group, Reloadable: true, Placeholder: "[SERVICE=]KEY=VALUE;…", Usage: "limits for the requests to one service, or to all services, in place of those that its workers advertise and of the settings of this group: " + keys + "; may be repeated"})
	settings.Custom(set, &p.File, settings.Spec{Name: "service-policy-file", Group: group, Reloadable: true, Placeholder: "FILE", Usage: "YAML file of the same limits, as SERVICE: {KEY: VALUE}, with * for all services; --service-policy has precedence, key by key; read again by a reload"},
		settings.Kind[policyFile]{
			Name: "string", Want: "a readable file",
			Parse: func(path string) (policyFile, error) {
				if path == "" {
					return policyFile{policies: newPolicies()}, nil
				}
				content, err := os.ReadFile(path)
				f := policyFile{path: path, content: string(content)}
				f.policies, f.err = parsePolicyFile(content)
				return f, err
			},
			Format: func(f policyFile) string { return f.path },
			Mark:   func(f policyFile) string { return f.path + "\x00" + f.content },
		})
	set.Check(func() (problems []settings.Problem) {
		if p.File.err != nil {
			for _, one := range split(p.File.err) {
				problems = append(problems, settings.Problem{Setting: "service-policy-file", Value: p.File.path, Reason: one.Error()})
			}
		}
		return problems
	})
}

// policies returns those of the flags, and of the file where the flags have none.
func (p *policySettings) policies() ingress.Policies { return p.Flags.Value.Or(p.File.policies) }

// parsePolicyFile parses the content of a file of policies. The error joins all problems.
func parsePolicyFile(content []byte) (ingress.Policies, error) {
	policies := newPolicies()
	var services map[string]map[string]string
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&services); errors.Is(err, io.EOF) {
		return policies, errors.New("the file is empty: write {} for no policy")
	} else if err != nil {
		var lines *yaml.TypeError
		if !errors.As(err, &lines) {
			return policies, fmt.Errorf("not a list of policies by service: %w", err)
		}
		var problems []error
		for _, line := range lines.Errors {
			problems = append(problems, errors.New(line+": want SERVICE: {KEY: VALUE}"))
		}
		return policies, errors.Join(problems...)
	}
	var problems []error
	if second := (yaml.Node{}); !errors.Is(decoder.Decode(&second), io.EOF) {
		problems = append(problems, errors.New("the file holds more than one YAML document: write all policies in the first one"))
	}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		name := service
		if service == everyService {
			name = ""
		} else if affinity.ValidateService(service) != nil {
			problems = append(problems, fmt.Errorf("%q is not the name of a service: write one, or %s for all services", service, everyService))
			continue
		}
		var policy operatorPolicy
		for _, key := range slices.Sorted(maps.Keys(services[service])) {
			if err := policy.set(name, key, services[service][key]); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", service, err))
			}
		}
		policy.addTo(&policies, name)
	}
	return policies, errors.Join(problems...)
}

// operatorPolicy is a policy of the operator for one service, or for all.
type operatorPolicy struct {
	advertise.Policy
	slots  *int
	canary routing.Canary
	cookie ingress.CookieAttributes
}

// set sets the part of a key, for a service or, if that is empty, for all.
func (p *operatorPolicy) set(service, key, value string) error {
	switch key {
	case routing.KeySlots:
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("%s %.20q: want a whole number, 0 for no limit", key, value)
		}
		p.slots = new(int(n))
		return nil
	case routing.KeyCanary:
		if service == "" {
			return errors.New("canary: only for a single service, whose version it is; name it")
		}
		var err error
		p.canary, err = parseCanary(value)
		return err
	case "retry":
		if advertise.Retry(value) == advertise.RetryAlways && service == "" {
			return errors.New("retry always: only for a single service, whose requests may run more than once; name it")
		}
	case advertise.KeySessionCookie: // it changes the plan, which a reload does not
		return errors.New("session-cookie has a setting of its own: SERVICE=NAME in --session-cookie")
	}
	if ok, err := p.cookie.Set(key, value); ok {
		return err
	}
	return p.Policy.Set(key, value)
}

func (p *operatorPolicy) addTo(policies *ingress.Policies, service string) {
	if p.slots != nil {
		policies.Slots[service] = *p.slots
	}
	if p.cookie != (ingress.CookieAttributes{}) {
		policies.Cookies[service] = p.cookie
	}
	if p.canary.Set() {
		policies.Canaries[service] = p.canary
	}
	policies.ByService[service] = p.Policy
}

// parseCanary parses "2.0:5%".
func parseCanary(text string) (c routing.Canary, err error) {
	refuse := func(reason string) (routing.Canary, error) {
		return routing.Canary{}, fmt.Errorf("canary %.100q: %s: want VERSION:N%%, 0%% to 100%%, such as 2.0:5%%", text, reason)
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return refuse("no share")
	}
	digits, percent := strings.CutSuffix(text[colon+1:], "%")
	share, err := strconv.ParseFloat(digits, 64)
	if err != nil || !percent || strings.ContainsFunc(digits, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) {
		return refuse("the share is not a percentage")
	}
	c = routing.Canary{Version: text[:colon], Share: share / 100}
	if err := routing.ValidateCanary(c); err != nil {
		return refuse(err.Error())
	}
	return c, nil
}

func newPolicies() ingress.Policies {
	return ingress.Policies{ByService: map[string]advertise.Policy{}, Slots: routing.Slots{}, Canaries: routing.Canaries{}, Cookies: map[string]ingress.CookieAttributes{}}
}

// parsePolicies parses --service-policy: "retry=connect", or "billing=request-timeout=5s"
// for one service. It reports all errors.
func parsePolicies(items []string) (ingress.Policies, []settings.Problem) {
	policies := newPolicies()
	var problems []settings.Problem
	refuse := func(text, reason, allowed string) {
		problems = append(problems, settings.Problem{Setting: "service-policy", Value: text, Reason: reason, Allowed: allowed})
	}
	again := map[string]bool{}
	for _, text := range items {
		service, rest := "", text
		if first, _, _ := strings.Cut(text, ";"); strings.Count(first, "=") > 1 {
			service, rest, _ = strings.Cut(text, "=")
			if service = strings.TrimSpace(service); affinity.ValidateService(service) != nil {
				refuse(text, "not the name of a service before the first '='", "SERVICE=KEY=VALUE;…, or KEY=VALUE;… for all services")
				continue
			}
		}
		var policy operatorPolicy
		seen := map[string]bool{}
		before := len(problems)
		for part := range strings.SplitSeq(rest, ";") {
			key, value, _ := strings.Cut(part, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if key == "" && value == "" {
				continue
			}
			if seen[key] {
				refuse(text, fmt.Sprintf("%.40q is given twice", key), "")
			} else if err := policy.set(service, key, value); err != nil {
				refuse(text, err.Error(), "")
			}
			seen[key] = true
		}
		switch {
		case len(problems) > before:
			continue
		case len(seen) == 0:
			keys := append(slices.DeleteFunc(advertise.PolicyKeys(), func(key string) bool { return key == advertise.KeySessionCookie }), routing.KeySlots, routing.KeyCanary)
			keys = append(keys, ingress.CookieAttributeKeys()...)
			refuse(text, "no policy", strings.Join(keys, "=…, ")+"=…")
			continue
		case again[service]:
			refuse(text, "a second policy for "+cmp.Or(service, "all services"), "one, with all of its parts divided by ';'")
			continue
		}
		again[service] = true
		policy.addTo(&policies, service)
	}
	return policies, problems
}
