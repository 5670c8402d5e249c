package queueing

import (
	"time"

	"github.com/ringway/ringway/selection"
)

// attempt sends a request to a worker.
func (f *Fleet) attempt(r request) {
	if f.callers.refuses(f, &r) {
		return
	}
	r.ticket = f.clients[r.client].Pick(f.now)
	f.workers[r.ticket.Worker].assigned++
	if watch := f.Scenario.Watch; f.now >= watch[0] && f.now < watch[1] {
		f.watched++
		if int(r.ticket.Worker) == f.victim {
			f.toVictim++
		}
	}
	f.callers.wait(f, f.launch(r))
}

func (f *Fleet) launch(r request) int32 {
	id := f.keep(r)
	f.toWorker.push(event{f.now + selection.Instant(OneWay), id})
	return id
}

// keep stores a request and returns its index in f.requests.
func (f *Fleet) keep(r request) int32 {
	if len(f.free) == 0 {
		f.free = append(f.free, int32(len(f.requests)))
		f.requests = append(f.requests, request{})
	}
	id := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.requests[id] = r
	return id
}

// reach processes the arrival of a request at its worker.
func (f *Fleet) reach() {
	id := f.toWorker.pop().request
	r := &f.requests[id]
	w := &f.workers[r.ticket.Worker]
	r.reached, r.load = f.now, int32(w.load())
	switch {
	case r.probe:
		r.work = float32(w.recent.near(w.load()))
		f.toClient.push(event{f.now + selection.Instant(OneWay), id})
	case w.turn.Failing || r.failing:
		f.leave(id, Failure)
	case w.running < f.Slots:
		f.start(id)
	case w.waiting.len() < f.QueueBound:
		w.waiting.push(id)
	default:
		f.leave(id, Shed)
	}
}

func (f *Fleet) start(id int32) {
	r := &f.requests[id]
	w := &f.workers[r.ticket.Worker]
	w.running++
	f.running.push(event{f.now + selection.Instant(float64(r.work)*w.factor(f.now)), id})
}

// complete processes the end of a request at its worker.
func (f *Fleet) complete() {
	id := f.running.pop().request
	r := &f.requests[id]
	w := &f.workers[r.ticket.Worker]
	w.running--
	if w.recent != nil {
		w.recent.add(int(r.load), float32(f.now-r.reached))
	}
	r.load = int32(w.load())
	f.leave(id, Success)
	if w.waiting.len() > 0 {
		f.start(w.waiting.pop())
	}
}

// leave sends the answer of a request back to its client.
func (f *Fleet) leave(id int32, o Outcome) {
	r := &f.requests[id]
	r.outcome = o
	f.workers[r.ticket.Worker].assigned--
	f.toClient.push(event{f.now + selection.Instant(OneWay), id})
}

// answer processes the arrival of an answer at its client.
func (f *Fleet) answer() {
	id := f.toClient.pop().request
	r := f.requests[id]
	f.free = append(f.free, id)
	c := f.clients[r.client]
	if r.probe {
		c.(Prober).Probed(Probe{Worker: int(r.ticket.Worker), Load: int(r.load), Latency: float64(r.work)}, f.now)
		return
	}
	if f.Callers != nil {
		f.callers.answered(f, c, r)
		return
	}
	c.Done(r.ticket, Answer{Outcome: r.outcome, Load: int(r.load), Start: r.start, Now: f.now})
	if r.start < f.Warmup {
		return
	}
	f.result.Requests++
	switch r.outcome {
	case Success:
		f.result.served(time.Duration(f.now - r.start))
	case Failure:
		f.result.Failed++
	case Shed:
		f.result.Shed++
	}
}
