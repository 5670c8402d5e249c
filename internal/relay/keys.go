package relay

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/membership"
)

// maxKeysBody bounds a request to change keys; a key is 44 characters.
const maxKeysBody = 1024

// KeysRequest is the body of POST /api/v1/keys.
type KeysRequest struct {
	// Operation is install, use or remove.
	Operation membership.KeyOperation `json:"operation"`
	// Argument is the key for install, a fingerprint for the others.
	Argument string `json:"argument"`
}

// KeysAnswer is what both methods answer with.
type KeysAnswer struct {
	Members []membership.KeyResult `json:"members"`
	Error   string                 `json:"error,omitempty"`
}

// listKeys and changeKeys act on the keyrings of the whole fleet.
func (r *Relay) listKeys(w http.ResponseWriter, req *http.Request) {
	results, err := r.members.Keys(req.Context(), membership.ListKeys, "")
	answerKeys(w, results, err)
}

func (r *Relay) changeKeys(w http.ResponseWriter, req *http.Request) {
	var change KeysRequest
	d := json.NewDecoder(io.LimitReader(req.Body, maxKeysBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&change); err != nil {
		admin.WriteError(w, http.StatusBadRequest, `the body is not {"operation": …, "argument": …}`) // without the text: it may hold a key
		return
	}
	if change.Operation != membership.InstallKey && change.Operation != membership.UseKey && change.Operation != membership.RemoveKey {
		admin.WriteError(w, http.StatusBadRequest, "operation: allowed are install, use, remove")
		return
	}
	results, err := r.members.Keys(req.Context(), change.Operation, change.Argument)
	answerKeys(w, results, err)
}

func answerKeys(w http.ResponseWriter, results []membership.KeyResult, err error) {
	switch {
	case err == nil:
		admin.WriteJSON(w, http.StatusOK, KeysAnswer{Members: results})
	case errors.Is(err, membership.ErrNoKeyring):
		admin.WriteError(w, http.StatusConflict, err.Error())
	case len(results) == 0: // nothing was tried
		admin.WriteError(w, http.StatusBadRequest, err.Error())
	default:
		admin.WriteJSON(w, http.StatusBadGateway, KeysAnswer{Members: results, Error: err.Error()})
	}
}
