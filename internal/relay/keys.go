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
	change, err := decodeKeys(req.Body)
	if err != nil {
		admin.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	results, err := r.members.Keys(req.Context(), change.Operation, change.Argument)
	answerKeys(w, results, err)
}

// decodeKeys reads a request. Its errors show nothing of the text, which may hold a key.
func decodeKeys(body io.Reader) (change KeysRequest, err error) {
	d := json.NewDecoder(io.LimitReader(body, maxKeysBody))
	d.DisallowUnknownFields()
	if d.Decode(&change) != nil {
		return KeysRequest{}, errors.New(`the body is not {"operation": …, "argument": …}`)
	}
	switch change.Operation {
	case membership.InstallKey, membership.UseKey, membership.RemoveKey:
		return change, nil
	}
	return KeysRequest{}, errors.New("operation: allowed are install, use, remove")
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
