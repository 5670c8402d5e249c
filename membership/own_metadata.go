package membership

import (
	"context"
	"time"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// updateTimeout limits the wait until the gossip about new metadata is sent.
const updateTimeout = 2 * time.Second

// describe makes this node gossip its metadata.
func (n *Node) describe() error { return n.setMetadata(n.metadata()) }

// setMetadata encodes the metadata that this node gossips. With certificates the guard signs it on
// its way out, together with the incarnation.
func (n *Node) setMetadata(m gossip.Metadata) error {
	encode := func(m gossip.Metadata) ([]byte, error) { return m.Encode(0) }
	if n.guard != nil {
		encode = n.guard.Template
	}
	meta, err := encode(m)
	if err != nil {
		return err
	}
	n.delegate.meta.Store(&meta)
	return nil
}

func (n *Node) metadata() gossip.Metadata {
	return gossip.Metadata{
		Format: gossip.MetadataFormat, Cluster: n.cfg.Cluster, Environment: n.cfg.Environment,
		ID: n.cfg.ID, Epoch: n.epoch, Role: string(n.cfg.Role),
		Datacenter: n.cfg.Datacenter, Region: n.cfg.Region,
		ForwardAddr: n.cfg.ForwardAddr, AdminAddr: n.cfg.AdminAddr, Version: n.cfg.Version,
		Draining: n.draining.Load(),
	}
}

// SetDraining makes the other members show this one as draining, or not any more. It has no other
// effect, and does not wait until they know. Safe for concurrent use.
func (n *Node) SetDraining(on bool) {
	if n.draining.Swap(on) == on {
		return
	}
	publish.Notify(n.drained)
}

// followMetadata gossips the metadata of this node again when it changes, and when the certificate
// that signs it is replaced. Other members then request the new certificate. It also answers the
// doubts that memberlist does not.
func (n *Node) followMetadata(ctx context.Context) {
	var doubted <-chan struct{}
	if n.guard != nil {
		doubted = n.guard.Doubted()
	}
	draining := false // as the others know it
	for {
		var changed <-chan struct{}
		signed := true
		if n.guard != nil {
			// Taken before the check of the signature, so that no change between the two is missed.
			changed = n.cfg.Identity.Changed()
			select { // the proofs of other members may have changed as well
			case n.recheck <- struct{}{}:
			default:
			}
			meta := *n.delegate.meta.Load()
			signed = n.SignedNow(meta[len(meta)-MaxSignature:])
		}
		if now := n.metadata(); !signed || now.Draining != draining {
			draining = now.Draining
			n.updateMetadata(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.drained:
		case <-changed:
		case <-doubted:
			// The wait, for a round of gossip, also limits how often this node answers.
			_ = n.list.UpdateNode(gossipInterval)
		}
	}
}

// updateMetadata has memberlist announce the metadata under a new incarnation, which makes it newer
// than what other members have.
func (n *Node) updateMetadata(m gossip.Metadata) {
	if err := n.setMetadata(m); err != nil {
		n.logger.Error("cannot gossip the new metadata of this node, so other members keep the old one", "err", err)
		return
	}
	if err := n.list.UpdateNode(updateTimeout); err != nil {
		n.logger.Debug("gossiping new metadata takes long", "err", err)
	}
}

// memberOf returns the member that metadata describes.
func memberOf(m gossip.Metadata, gossipAddr string) Member {
	return Member{
		ID: m.ID, Epoch: m.Epoch, Role: identity.Role(m.Role),
		Cluster: m.Cluster, Environment: m.Environment,
		Datacenter: m.Datacenter, Region: m.Region,
		GossipAddr: gossipAddr, ForwardAddr: m.ForwardAddr, AdminAddr: m.AdminAddr,
		Version: m.Version, Draining: m.Draining,
	}
}
