package ingress

import (
	"maps"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/routing"
)

// Policies are the operator's policies. A field that is set has precedence over what the
// workers of a service advertise.
type Policies struct {
	ByService map[string]advertise.Policy
	Default   advertise.Policy
	Slots     routing.Slots
}

// Or returns the policies with what is not set replaced by that of other.
func (p Policies) Or(other Policies) Policies {
	out := Policies{ByService: maps.Clone(other.ByService), Default: p.Default.Or(other.Default), Slots: maps.Clone(other.Slots)}
	for service, own := range p.ByService {
		out.ByService[service] = own.Or(other.ByService[service])
	}
	maps.Copy(out.Slots, p.Slots)
	return out
}

// Origin returns where the field of a key comes from, for a service whose workers advertise
// this policy.
func (p Policies) Origin(service string, advertised advertise.Policy, key string) api.Origin {
	switch {
	case p.ByService[service].Get(key) != "":
		return api.FromServiceSetting
	case p.Default.Get(key) != "":
		return api.FromSetting
	case advertised.Get(key) != "":
		return api.FromAdvertisement
	}
	return api.FromDefault
}

// Policy returns the policy in effect for the requests to a service whose workers advertise
// another one. Fields that neither the operator nor the workers set have the values of these
// settings; progress is that of Config.Progress. An AttemptTimeout of 0 is no limit.
func (r *Requests) Policy(service string, advertised advertise.Policy, progress time.Duration) advertise.Policy {
	p := r.Policies.Default.Or(advertised)
	if own, found := r.Policies.ByService[service]; found {
		p = own.Or(p)
	}
	if p.AttemptTimeout == 0 && p.RequestTimeout > 0 && r.AttemptShare > 0 {
		p.AttemptTimeout = time.Duration(float64(p.RequestTimeout) * r.AttemptShare)
	}
	return p.Or(advertise.Policy{RequestTimeout: r.Timeout, AttemptTimeout: r.AttemptTimeout, ProgressTimeout: progress, Retry: advertise.RetryIdempotent})
}

func (h *Handler) policyOf(s *routing.Service) advertise.Policy {
	p := h.cfg.Requests.Policy(s.Name, s.Route().Policy, h.cfg.Progress)
	if h.cfg.Hop {
		p.ProgressTimeout = upstream.BehindRelay(p.ProgressTimeout)
	}
	return p
}
