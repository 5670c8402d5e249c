package relay

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/sharedkey"
)

// maxKeysBody bounds a request to change keys in bytes; a key has 44 characters.
const maxKeysBody = 1024

// listKeys and changeKeys act on the keyrings of the whole cluster.
func (r *Relay) listKeys(w http.ResponseWriter, req *http.Request) {
	results, err := r.members.Keys(req.Context(), membership.ListKeys, "")
	answerKeys(w, results, err)
}

func (r *Relay) changeKeys(w http.ResponseWriter, req *http.Request) {
	change, err := decodeKeys(req.Body)
	if err != nil {
		node.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	results, err := r.members.Keys(req.Context(), change.Operation, change.Argument)
	answerKeys(w, results, err)
}

// decodeKeys reads a request. Its errors never contain the text, which may hold a key.
func decodeKeys(body io.Reader) (change api.KeysRequest, err error) {
	d := json.NewDecoder(io.LimitReader(body, maxKeysBody))
	d.DisallowUnknownFields()
	if d.Decode(&change) != nil {
		return api.KeysRequest{}, errors.New(`the body is not {"operation": …, "argument": …}`)
	}
	switch change.Operation {
	case membership.InstallKey, membership.UseKey, membership.RemoveKey:
		return change, nil
	}
	return api.KeysRequest{}, errors.New("operation: allowed are install, use, remove")
}

func answerKeys(w http.ResponseWriter, results []membership.KeyResult, err error) {
	switch {
	case err == nil:
		node.WriteJSON(w, http.StatusOK, api.Keys{Members: results})
	case errors.Is(err, membership.ErrNoKeyring):
		node.WriteError(w, http.StatusConflict, err.Error())
	case len(results) == 0: // nothing was tried
		node.WriteError(w, http.StatusBadRequest, err.Error())
	default:
		node.WriteJSON(w, http.StatusBadGateway, api.Keys{Members: results, Error: err.Error()})
	}
}

// newKeeper makes the keeper of the key that all relays sign session cookies with. It asks
// and answers on the peer listener.
func (r *Relay) newKeeper() (*sharedkey.Keeper, error) {
	m := r.cfg.Membership
	c := sharedkey.DefaultConfig()
	c.ID, c.Epoch, c.Role, c.Label = m.ID, r.members.Epoch(), m.Role, m.Cluster+"/"+m.Environment
	c.Members, c.Joined = r.members, func() bool { return r.members.Status().Joined }
	c.Value, c.File = sharedkey.Secret(r.cfg.SharedKey), r.cfg.SharedKeyFile
	c.Logger, c.Registerer = r.cfg.Logger, r.cfg.Registry
	switch {
	case m.Identity != nil:
		c.Authorize = func(req *http.Request) error { return authorizePeer(m.Identity, req) }
		c.Client = func(to membership.Member) *http.Client { return peerClient(m.Identity, to) }
	case m.Keyring != nil:
		c.Seal = func() (keys []sharedkey.Secret) {
			for _, key := range m.Keyring.Keys() {
				keys = append(keys, key)
			}
			return keys
		}
	default:
		addr, err := netip.ParseAddrPort(r.peer.socket.Addr().String())
		c.Insecure = r.cfg.Insecure || err == nil && addr.Addr().IsLoopback()
	}
	return sharedkey.New(c)
}

// authorizePeer admits relays and gates by the certificate that the listener has verified.
func authorizePeer(source *identity.Source, req *http.Request) error {
	claims, err := identity.PeerClaims(*req.TLS)
	if err != nil {
		return err
	}
	policy := source.Policy(identity.DataPlane)
	policy.Only = []identity.Role{identity.RoleRelay, identity.RoleGate}
	return policy.Check(claims)
}

// peerClient returns a client that connects only to this relay. It keeps no connection,
// because relays are asked rarely.
func peerClient(source *identity.Source, to membership.Member) *http.Client {
	expected := identity.Expected{Node: to.ID, Role: to.Role, Addr: to.ForwardAddr}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			d := tls.Dialer{Config: source.ClientConfig(source.Policy(identity.DataPlane), expected, "http/1.1")}
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, fmt.Errorf("TLS with %s: %w", to.ID, err)
			}
			return conn, nil
		},
	}}
}

// withSharedKey answers questions for the key. Everything else on the peer listener is a
// forwarded request, which always names the relay that forwarded it.
func withSharedKey(keeper *sharedkey.Keeper, forwarded http.Handler) http.Handler {
	key := keeper.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == sharedkey.Path && req.Header.Get(wire.HopHeader) == "" {
			key.ServeHTTP(w, req)
			return
		}
		forwarded.ServeHTTP(w, req)
	})
}
