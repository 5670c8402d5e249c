package check

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// ErrNoFacts is wrapped by Peer.Err when the relay runs and does not know the
// question.
var ErrNoFacts = errors.New("does not answer facts (older version?)")

// goneFor is how long a relay that vanished and says nothing counts as trouble.
const goneFor = 15 * time.Minute

// relaysAnswer: who is in the view, or was and did not leave, is asked. What answers
// without being in the view is on the other side of a partition.
func relaysAnswer(f *Fleet) (found []Finding) {
	for _, p := range f.Peers {
		gone := ""
		if !p.Gone.IsZero() {
			gone = span(f.Now.Sub(p.Gone))
		}
		switch {
		case p.Facts != nil && gone != "":
			found = append(found, Finding{
				Status: Failed, Subject: p.ID, Passing: true,
				Text:   fmt.Sprintf("relay %s runs and is not in the view: it vanished %s ago", p.ID, gone),
				Cause:  "gossip between the two is cut, or goes one way only: the cluster is split, and the parts plan without each other",
				Remedy: fmt.Sprintf("let TCP and UDP through between the gossip addresses of both hosts; run `relay check` on %s, too; the parts find each other within a minute", p.ID),
				Page:   page("members-disagree"),
			})
		case p.Facts != nil:
		case gone != "" && refused(p.Err):
			found = append(found, Finding{
				Status: Warning, Subject: p.ID,
				Text:   fmt.Sprintf("relay %s vanished %s ago without leaving, and nothing listens at %s", p.ID, gone, p.Addr),
				Cause:  "it crashed, was killed, or its host is down; its workers were shared out among the others",
				Remedy: fmt.Sprintf("start %s again; if it is gone for good, do nothing: it is forgotten after an hour", p.ID),
				Page:   page("member-down"),
			})
		case gone != "":
			status := Failed
			if f.Now.Sub(p.Gone) > goneFor {
				status = Warning // it will hardly come back
			}
			found = append(found, Finding{
				Status: status, Subject: p.ID,
				Text:   fmt.Sprintf("relay %s vanished %s ago without leaving, and does not answer at %s: %v", p.ID, gone, p.Addr, p.Err),
				Cause:  "it is partitioned from this relay, or its process hangs; the others have taken its workers over",
				Remedy: fmt.Sprintf("look at the process and the network of %s; if it is gone for good, do nothing: it is forgotten after an hour", p.ID),
				Page:   page("member-down"),
			})
		case errors.Is(p.Err, ErrNoFacts):
			found = append(found, Finding{
				Status: Warning, Subject: p.ID,
				Text:   fmt.Sprintf("relay %s %v: it is not compared", p.ID, ErrNoFacts),
				Cause:  p.Err.Error(),
				Remedy: fmt.Sprintf("upgrade %s, then check again", p.ID),
				Page:   page("relay-silent"),
			})
		default:
			found = append(found, Finding{
				Status: Failed, Subject: p.ID, Passing: true,
				Text:   fmt.Sprintf("relay %s is in the view and does not answer at %s: %v", p.ID, p.Addr, p.Err),
				Cause:  "it hangs, is overloaded, or its peer address cannot be reached from here; requests that must be forwarded to it fail",
				Remedy: fmt.Sprintf("look at the process of %s (`relay health` there), and let TCP through from this host to %s", p.ID, p.Addr),
				Page:   page("relay-silent"),
			})
		}
	}
	for _, g := range f.FailedWorkers {
		found = append(found, Finding{
			Status: Warning, Subject: g.ID,
			Text:   fmt.Sprintf("worker %s vanished %s ago without leaving", g.ID, span(f.Now.Sub(g.At))),
			Cause:  "it crashed, was killed, or cannot be reached; requests go to the other workers",
			Remedy: fmt.Sprintf("start %s again, or look at its network; if it is gone for good, do nothing", g.ID),
			Page:   page("member-down"),
		})
	}
	return found
}

// refused reports that the host is there and nobody listens.
func refused(err error) bool {
	var op *net.OpError
	var call *os.SyscallError
	return errors.As(err, &op) && errors.As(op, &call) && isRefused(call.Err)
}

func fineAnswers(f *Fleet) string {
	return fmt.Sprintf("%s: all answer", plural(len(f.Peers)+1, "relay", "relays"))
}
