package relay

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership"
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
		process.WriteError(w, http.StatusBadRequest, err.Error())
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
		process.WriteJSON(w, http.StatusOK, api.Keys{Members: results})
	case errors.Is(err, membership.ErrNoKeyring):
		process.WriteError(w, http.StatusConflict, err.Error())
	case len(results) == 0: // nothing was tried
		process.WriteError(w, http.StatusBadRequest, err.Error())
	default:
		process.WriteJSON(w, http.StatusBadGateway, api.Keys{Members: results, Error: err.Error()})
	}
}
