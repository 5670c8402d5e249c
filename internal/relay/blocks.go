package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
)

const (
	// maxBlockBody bounds a request to change blocks in bytes.
	maxBlockBody = 4 << 10
	// maxBlockTime bounds a block of a command: a longer one would end with a restart, and the file
	// is the place for it.
	maxBlockTime = 30 * 24 * time.Hour
)

func (r *Relay) listBlocks(w http.ResponseWriter, _ *http.Request) {
	r.writeBlocks(w, r.blocks.List(time.Now())...)
}

func (r *Relay) writeBlocks(w http.ResponseWriter, blocks ...ingress.BlockState) {
	a := api.Blocks{Relay: r.cfg.Membership.ID, Blocks: []api.Block{}}
	for _, b := range blocks {
		a.Blocks = append(a.Blocks, describeBlock(b))
	}
	process.WriteJSON(w, http.StatusOK, a)
}

func describeBlock(b ingress.BlockState) api.Block {
	return api.Block{Caller: b.Caller, Service: b.Service, Until: b.Until, Reason: b.Reason, Origin: string(b.Origin), Refused: b.Refused}
}

func (r *Relay) changeBlocks(w http.ResponseWriter, req *http.Request) {
	change, err := decodeBlock(req.Body)
	var block ingress.BlockState
	switch {
	case err != nil:
	case change.Operation == api.RemoveBlock:
		block, err = r.blocks.Remove(change.Caller, change.Service, time.Now())
	default:
		now := time.Now()
		block, err = r.blocks.Add(ingress.Block{
			Caller: change.Caller, Service: change.Service, Reason: change.Reason,
			Until: now.Add(time.Duration(change.ForMs) * time.Millisecond).UTC(),
		}, now)
	}
	switch {
	case errors.Is(err, ingress.ErrNoBlock):
		process.WriteError(w, http.StatusNotFound, err.Error())
		return
	case err != nil:
		process.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	r.cfg.Logger.Info("an operator has changed the blocks", "operation", change.Operation, "caller", block.Caller, "service", block.Service, "until", block.Until, "reason", block.Reason, "refused", block.Refused)
	r.writeBlocks(w, block)
}

// decodeBlock reads a request to add or remove a block, whose caller and service are not checked.
func decodeBlock(body io.Reader) (change api.BlockRequest, err error) {
	d := json.NewDecoder(io.LimitReader(body, maxBlockBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&change); err != nil {
		return change, fmt.Errorf(`the body is not {"operation": …, "caller": …, "service": …, "for_ms": …, "reason": …}: %w`, err)
	}
	switch longest := maxBlockTime.Milliseconds(); {
	case change.Operation == api.RemoveBlock:
	case change.Operation != api.AddBlock:
		return change, fmt.Errorf("operation %.40q: allowed are add, remove", change.Operation)
	case change.ForMs < 1000 || change.ForMs > longest:
		return change, fmt.Errorf("for_ms %d: want 1000 to %d (30 days): a block that stays belongs in blocks of the file", change.ForMs, longest)
	}
	return change, nil
}
