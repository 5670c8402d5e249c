package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/sharedkey"
	"github.com/ringway/ringway/internal/wirefixture"
)

// answers returns the documents of the admin API by name, with a value in every field.
func answers() map[string]any {
	values := make([]settings.Value, 1)
	fill(reflect.ValueOf(values).Index(0), 0)
	all := map[string]any{
		"services": &api.Services{}, "service": &api.Service{}, "plan": &api.Plan{}, "plan-change": &api.PlanChange{}, "explain": &api.Explanation{},
		"route": &api.Route{}, "check": &api.Report{}, "keys": &api.Keys{}, "keys-request": &api.KeysRequest{}, "reload": &api.Reload{},
		"drain": &api.Drain{}, "blocks": &api.Blocks{}, "block-request": &api.BlockRequest{}, "rebalance": &api.Rebalance{}, "shared-key": &sharedkey.Status{},
		"worker-services": &api.WorkerServices{}, "worker-drain-request": &api.WorkerDrainRequest{}, "worker-reload": &api.WorkerReload{},
		"config": &api.Config{ID: "text", Settings: api.Settings(values)}, "departures": &api.Departures{}, "traffic": &api.Traffic{}, "fleet": &api.Fleet{}, "version": &process.Build{},
	}
	for _, answer := range all {
		if v := reflect.ValueOf(answer).Elem(); v.IsZero() {
			fill(v, 0)
		}
	}
	return all
}

// A command reads the answers of a process that was started before an upgrade, and the
// reverse.
func TestTheDocumentsOfReleasesAreReadAndWritten(t *testing.T) {
	var formats []wirefixture.Format
	for name, answer := range answers() {
		f := wirefixture.Format{
			Name:   name,
			Encode: func() ([]byte, error) { return json.Marshal(answer) },
			Decode: func(raw []byte) (any, error) {
				value := reflect.New(reflect.TypeOf(answer).Elem()).Interface()
				return value, json.Unmarshal(raw, value)
			},
			Later: map[string]func([]byte) []byte{"a field": func(raw []byte) []byte { return append(raw[:len(raw)-1], `,"later":{"a":[1]}}`...) }},
		}
		if name == "shared-key" { // no program reads the type
			f.Decode = func(raw []byte) (value any, err error) { return value, json.Unmarshal(raw, &value) }
			f.Later = nil
		}
		formats = append(formats, f)
	}
	wirefixture.Check(t, formats...)
}

// Scripts read these answers: a field that was there stays, by its name and place. An
// intended change is written with UPDATE_GOLDEN=1. Every field has a value here, those
// that are left out when they are empty, too.
func TestTheAnswersOfTheAdminAPIKeepTheirFields(t *testing.T) {
	for name, answer := range answers() {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(answer, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			file := filepath.Join("testdata", name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
				t.Errorf("%s: %v, the answer is now\n%s", file, err, got)
			}
		})
	}
}

// fill gives everything that can be seen a value that is not zero.
func fill(v reflect.Value, depth int) {
	if depth > 12 || !v.CanSet() && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			if v.CanSet() {
				v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)))
			}
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("anything"))
		}
	default:
		panic(fmt.Sprintf("no value for a %s", v.Type()))
	}
}
