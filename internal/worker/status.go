package worker

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/membership"
)

func (a *Agent) handleStatusPage(mux *http.ServeMux) {
	statuspage.Handle(mux, statuspage.Config{Document: a.statusDocument, Registerer: a.cfg.Registry})
}

// statusDocument describes the worker for its page. Of the members it has the relays
// and gates: the other workers are not its business.
func (a *Agent) statusDocument(context.Context, string) statuspage.Document {
	now, m := time.Now(), a.cfg.Membership
	d := statuspage.Document{
		ID: m.ID, Role: string(membership.RoleWorker), Cluster: m.Cluster, Environment: m.Environment, Datacenter: m.Datacenter, Region: m.Region,
		Build: daemon.Version(), Uptime: now.Sub(time.UnixMilli(int64(a.members.Epoch()))),
		ServicesChecksum: fmt.Sprintf("%016x", a.catalogue.View().Checksum()),
	}
	if s := a.members.Snapshot(); s != nil {
		d.MembersChecksum = fmt.Sprintf("%016x", s.Checksum())
		for _, member := range statuspage.Members(s, now) {
			if member.Role != string(membership.RoleWorker) {
				d.Members = append(d.Members, member)
			}
		}
		if s.Degraded() {
			d.Notices = append(d.Notices, statuspage.Notice{
				Severity: statuspage.Problem, Runbook: "view-degraded", Text: "Much of the cluster vanished at once, as this worker sees it.",
				Remedy: "Look whether its network is cut off, UDP included. Nothing has to be restarted.",
			})
		}
	}
	for _, s := range a.offering.status() {
		d.Offers = append(d.Offers, statuspage.Offer{
			Name: s.Name, Address: s.Address, Protocol: string(s.Protocol), State: string(s.State), Good: s.State == Offered,
			Drained: s.Drained, Check: string(s.Check), Weight: s.Weight, Since: now.Sub(s.Since), Error: s.Error,
		})
	}
	reasons := a.Reasons()
	d.Ready = len(reasons) == 0
	for _, reason := range reasons {
		d.Notices = append(d.Notices, statusNotice(reason))
	}
	return d
}

// statusNotice says what to do about a reason of Reasons.
func statusNotice(reason string) statuspage.Notice {
	n := statuspage.Notice{Severity: statuspage.Problem, Text: strings.ToUpper(reason[:1]) + reason[1:] + "."}
	switch {
	case reason == "draining":
		n.Remedy = "It stops: relays send nothing new."
	case strings.HasPrefix(reason, "not joined"):
		n.Remedy, n.Runbook = "Check the addresses of --join, and that their gossip port is reachable, over TCP and UDP.", "alone"
	case strings.Contains(reason, "drained"):
		n.Remedy, n.Runbook = "`worker undrain` offers it again.", "drain-forgotten"
	case strings.Contains(reason, "service"):
		n.Remedy, n.Runbook = "The check of the service says why; see the table.", "service-unhealthy"
	}
	return n
}
