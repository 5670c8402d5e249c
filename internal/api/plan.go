package api

import "github.com/ringway/ringway/affinity"

// PlanSettings are where the settings of plans come from.
type PlanSettings struct {
	// Version is the one in use; 0 is the relay's own configuration.
	Version uint64 `json:"version"`
	// Author is the relay from whose configuration they are, Hash a short name of the values.
	Author string `json:"author"`
	Hash   string `json:"hash"`
	// Values are the settings, as in strategy=projection&min-peers-per-worker=3.
	Values string `json:"values"`
	// FileVersion and FileHash are those of this relay's own configuration; Lags means that
	// it is older than what is in use, or has other values.
	FileVersion uint64 `json:"file_version"`
	FileHash    string `json:"file_hash"`
	Lags        bool   `json:"lags"`
	// FromFleet is whether the relay uses what other relays state.
	FromFleet bool `json:"from_fleet"`
	// Conflict names another relay with other values of the version in use.
	Conflict string `json:"conflict,omitempty"`
}

// Plan is the answer to GET /api/v1/services/{name}/plan: the whole plan, as every relay computes it. Members that have
// vanished may still have their place in it; they are marked and not counted.
type Plan struct {
	Service string `json:"service"`
	// Strategy is the one in use; Fallback is the reason if another one was configured.
	Strategy    affinity.Strategy    `json:"strategy"`
	Fallback    string               `json:"fallback,omitempty"`
	IndexSource affinity.IndexSource `json:"index_source"`
	// Settings are where the settings come from that the plan is made with.
	Settings PlanSettings `json:"settings"`

	Relays []PlannedRelay `json:"relays"` // by index
	// Absent are the members of the plan that have vanished.
	Absent AbsentMembers `json:"absent"`

	RelaysPerWorker map[string]int `json:"relays_per_worker"`
	Coverage        Coverage       `json:"coverage"`
	Connections     int            `json:"connections"`
	Load            Load           `json:"load"`
	// Zones is the expected traffic between zones; empty if all members are in one.
	Zones []ZoneTraffic `json:"zones,omitempty"`
	// Refused are the workers whose offers this relay does not use, with the reason.
	Refused map[string]string `json:"refused,omitempty"`
}

// Load is the expected load of workers as a multiple of their share by weight: the mean is 1. Most
// is the least that the connections and the traffic of the relays allow.
type Load struct {
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// ZoneTraffic is what the relays of one zone send to the workers of one.
type ZoneTraffic struct {
	From  string  `json:"from"`
	To    string  `json:"to"`
	Share float64 `json:"share"` // of all traffic of the service, 0 to 1
}

// PlannedRelay is one affine relay with its workers.
type PlannedRelay struct {
	Relay  string `json:"relay"`
	Index  int    `json:"index"`
	Absent bool   `json:"absent,omitempty"`
	Range  string `json:"range,omitempty"` // empty with rendezvous
	// Traffic is how many requests per second the relay states for the service, TrafficRatio how
	// many times the mean of what the relays state that is. Both are missing if it states none.
	Traffic      int             `json:"traffic,omitempty"`
	TrafficRatio float64         `json:"traffic_ratio,omitempty"`
	Workers      []PlannedWorker `json:"workers"`
}

// PlannedWorker is a worker in the range of a relay.
type PlannedWorker struct {
	Worker string  `json:"worker"`
	Weight float64 `json:"weight"`
	Absent bool    `json:"absent,omitempty"`
}

// AbsentMembers are IDs, in the order of the plan.
type AbsentMembers struct {
	Relays  []string `json:"relays"`
	Workers []string `json:"workers"`
}

// Coverage counts connections from both sides.
type Coverage struct {
	RelaysPerWorker MinMax `json:"relays_per_worker"`
	WorkersPerRelay MinMax `json:"workers_per_relay"`
}

// MinMax is the least and the greatest of some counts, 0 without counts.
type MinMax struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// PlanChange is the answer to GET /api/v1/services/{name}/plan?what-if=CHANGE and
// GET /api/v1/plan?what-if=CHANGE: the plan of one service, or of all, now and after a change.
// Members that have vanished are not counted.
type PlanChange struct {
	// Service is empty for all services; Services is how many were planned.
	Service  string `json:"service,omitempty"`
	Services int    `json:"services"`
	// Change is the change as it was asked for.
	Change string `json:"change"`
	// Ignored is a part of the change that has no effect on some services, with the reason.
	Ignored string `json:"ignored,omitempty"`

	Now  PlanFigures `json:"now"`
	Then PlanFigures `json:"then"`
	// Opened and Closed are pairs of a relay and a worker that only one of the two plans
	// connects, counted for each service. MostOpened is how many of them one relay opens, and
	// MostOpenedBy the first relay that does; +1 is one that joins.
	Opened       int    `json:"opened"`
	Closed       int    `json:"closed"`
	MostOpened   int    `json:"most_opened"`
	MostOpenedBy string `json:"most_opened_by,omitempty"`
}

// PlanFigures describes the plans of one or more services.
type PlanFigures struct {
	// Strategy is the configured one; Fallback names a service that cannot use it, with the reason.
	Strategy       affinity.Strategy    `json:"strategy"`
	Fallback       string               `json:"fallback,omitempty"`
	IndexSource    affinity.IndexSource `json:"index_source"`
	PeersPerWorker int                  `json:"min_peers_per_worker"`
	PeersPerRelay  int                  `json:"min_peers_per_relay"`
	// Relays of the fleet; Workers count once for each service.
	Relays  int `json:"relays"`
	Workers int `json:"workers"`
	// RelaysPerService is how many serve a service, on average.
	RelaysPerService float64 `json:"relays_per_service"`
	Connections      int     `json:"connections"`
	// WorkersPerRelay and MeanWorkersPerRelay are connections of one relay of the fleet, those
	// that serve no service included.
	WorkersPerRelay     MinMax  `json:"workers_per_relay"`
	MeanWorkersPerRelay float64 `json:"mean_workers_per_relay"`
	// HopShare is the share of requests that take a hop to another relay, if all relays and all
	// services get equally many.
	HopShare float64 `json:"hop_share"`
	// LeastLoaded and MostLoaded are the expected load of a worker ÷ the load that its weight
	// asks for, if all relays of a service get equally many requests.
	LeastLoaded float64 `json:"least_loaded"`
	MostLoaded  float64 `json:"most_loaded"`
}
