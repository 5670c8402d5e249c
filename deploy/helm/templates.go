package main

import (
	"slices"
	"strings"
)

// template is a manifest with values in place of what operators change.
type template struct {
	file string // in deploy/kubernetes, and in the templates of the chart
	// condition is the value that leaves out the whole file if it is false, or an expression.
	condition string
	edits     []edit
}

// edit replaces a text of the manifest. It is an error if from does not occur as often as times.
type edit struct {
	from  string
	times int
	to    string
}

// value inserts a value as JSON. In uri-sans and the like, printf inserts into a text.
func value(path string) string { return "{{ toJson .Values." + path + " }}" }

func text(format string, values ...string) string {
	return "{{ printf \"" + format + "\" " + strings.Join(values, " ") + " | toJson }}"
}

func image(name string) string {
	return "image: " + text("%s-"+name+":%s", ".Values.image.repository", "(.Values.image.tag | default .Chart.AppVersion)")
}

// optional is a key that is there only if the value is not empty.
func optional(indent, key, path string) string {
	return indent + "{{- with .Values." + path + " }}\n" + indent + key + ": {{ toJson . }}\n" + indent + "{{- end }}\n"
}

var templates = []template{
	{file: "issuer.yaml", condition: ".Values.issuer.create", edits: []edit{
		{"name: ringway\n", 1, "name: " + value("issuer.name") + "\n"},
		{"secretName: ringway-ca\n", 1, "secretName: " + value("secrets.authority") + "\n"},
	}},
	{file: "relays.yaml", edits: append(workload("relays", "relay"),
		replaced("relays", "RINGWAY_INGRESS_ADDR", `value: "[$(POD_IP)]:7410"`),
		edit{"image: ringway-relay\n", 2, image("relay") + "\n"},
		edit{"  selector: {app.kubernetes.io/name: relay, app.kubernetes.io/part-of: ringway}\n  ports:\n    - {name: http, port: 80,", 1,
			"  {{- if ne .Values.ingress.type \"ClusterIP\" }}\n  type: " + value("ingress.type") + "\n  {{- end }}\n" +
				"  selector: {app.kubernetes.io/name: relay, app.kubernetes.io/part-of: ringway}\n  ports:\n    - {name: http, port: " + value("ingress.port") + ","},
		edit{"  name: ingress\n", 1, "  name: ingress\n" + optional("  ", "annotations", "ingress.annotations")},
		edit{"resources:\n            requests: {cpu: 250m, memory: 128Mi}\n" +
			"            # No CPU limit: a throttled relay misses gossip probes and looks dead to the others.\n" +
			"            limits: {memory: 1Gi}\n", 1, "resources: " + value("relays.resources") + "\n"},
		edit{statefulSet, 1, "{{ if .Values.relays.config -}}\n" +
			"# Mounted as a directory, so that a change reaches running relays; relay reload applies it.\n" +
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: relay\n  labels: {app.kubernetes.io/name: relay, app.kubernetes.io/part-of: ringway}\n" +
			"data:\n  relay.yaml: {{ toPrettyJson .Values.relays.config | toJson }}\n---\n{{ end -}}\n" + statefulSet},
		edit{adminToken, 1, adminToken + configured("            - {name: RINGWAY_CONFIG, value: /etc/ringway/relay.yaml}\n")},
		edit{relayState + "      volumes:\n", 1, relayState + configured("            - {name: config, mountPath: /etc/ringway, readOnly: true}\n") +
			each("            ", "relays.extraVolumeMounts") + "      volumes:\n"},
		edit{relayMemory, 1, relayMemory + configured("        - name: config\n          configMap: {name: relay}\n") + each("        ", "relays.extraVolumes")},
	)},
	{file: "workers.yaml", condition: ".Values.example.enabled", edits: slices.Concat(attached, workload("example", "worker"), []edit{
		{"image: ringway-relay\n", 1, image("relay") + "\n"},
		{"image: ringway-worker\n", 1, image("worker") + "\n"},
		{"image: ringway-echo\n", 1, image("echo") + "\n"},
		replaced("example", "RINGWAY_READY_RELAYS", `value: "2"`),
		{`"127.0.0.1:9000"`, 1, text("127.0.0.1:%v", ".Values.example.port")},
		{`"echo=127.0.0.1:9000;check=http:/"`, 1, text("%s=127.0.0.1:%v;check=http:/", ".Values.example.service", ".Values.example.port")},
		{"resources:\n            requests: {cpu: 50m, memory: 64Mi}\n            limits: {memory: 256Mi}\n", 1, "resources: " + value("example.resources") + "\n"},
	})},
	{file: "networkpolicy.yaml", condition: ".Values.networkPolicy.enabled", edits: []edit{
		{"    - from: # your clients: restrict this\n        - namespaceSelector: {}\n", 1, "    - from: " + value("networkPolicy.clients") + "\n"},
		{"    # Add what else relays connect to: a collector of traces, services without a sidecar.\n", 1,
			each("    ", "networkPolicy.egress")},
		{"    # Add the ports of your services that others than relays connect to: the policy closes them.\n", 1, each("    ", "networkPolicy.workers")},
		{"{kubernetes.io/metadata.name: ringway}", 1, "{kubernetes.io/metadata.name: {{ toJson .Release.Namespace }}}"},
		{"{kubernetes.io/metadata.name: monitoring}", 2, "{kubernetes.io/metadata.name: " + value("networkPolicy.monitoringNamespace") + "}"},
	}},
	{file: "podmonitors.yaml", condition: ".Values.monitoring.podMonitors", edits: monitors},
	{file: "servicemonitors.yaml", condition: ".Values.monitoring.serviceMonitors", edits: monitors},
	{file: "autoscaling.yaml", condition: "and .Values.example.enabled .Values.example.autoscaling.enabled", edits: []edit{
		{"minReplicas: 3\n", 1, "minReplicas: " + value("example.autoscaling.minReplicas") + "\n"},
		{"maxReplicas: 30\n", 1, "maxReplicas: " + value("example.autoscaling.maxReplicas") + "\n"},
		{"averageValue: 20}", 1, "averageValue: " + value("example.autoscaling.inFlight") + "}"},
		{"{service: echo}", 1, "{service: " + value("example.service") + "}"},
	}},
}

const (
	statefulSet = "apiVersion: apps/v1\nkind: StatefulSet\n"
	adminToken  = "            - {name: RINGWAY_ADMIN_TOKEN_FILE, value: /run/admin/admin.token}\n"
	relayState  = "            - {name: state, mountPath: /var/lib/ringway}\n"
	relayMemory = "        - name: state\n          emptyDir: {medium: Memory, sizeLimit: 1Mi}\n"
)

// configured leaves lines out of relays without a configuration file.
func configured(lines string) string {
	indent := lines[:len(lines)-len(strings.TrimLeft(lines, " "))]
	return indent + "{{- if .Values.relays.config }}\n" + lines + indent + "{{- end }}\n"
}

// each is a line for each item of a list.
func each(indent, path string) string {
	return indent + "{{- range .Values." + path + " }}\n" + indent + "- {{ toJson . }}\n" + indent + "{{- end }}\n"
}

// monitors are the edits of objects for the operator of Prometheus.
var monitors = []edit{
	{"  labels: {app.kubernetes.io/part-of: ringway}\n", 2, "  labels: {{ merge (dict \"app.kubernetes.io/part-of\" \"ringway\") (.Values.monitoring.labels | default dict) | toJson }}\n"},
	{"{name: ringway-admin, key", 2, "{name: " + value("secrets.admin") + ", key"},
}

// attached are the edits for workers that attach: without what only gossip needs.
var attached = []edit{
	{join + gossipAddr, 1, "            {{- if .Values.example.attach }}\n            - {name: RINGWAY_ATTACH, value: " +
		text("dns+relays.%s.svc.%s:7420", ".Release.Namespace", ".Values.clusterDomain") + "}\n            {{- else }}\n" + join + gossipAddr + "            {{- end }}\n"},
	gossipOnly("            ", "- {name: RINGWAY_GOSSIP_KEY_FILE, value: /var/lib/ringway/gossip.keys}\n"),
	gossipOnly("            ", "- {name: gossip, containerPort: 7401, protocol: TCP}\n            - {name: gossip-udp, containerPort: 7401, protocol: UDP}\n"),
	{adminMount + stateMount, 1, adminMount + "            {{- if not .Values.example.attach }}\n" + stateMount + "            {{- end }}\n"},
	gossipOnly("        ", "- name: ringway-keys\n          image: ringway-relay\n          args: [keys, import, /run/secret/gossip.keys, /var/lib/ringway/gossip.keys]\n"+
		"          securityContext:\n            allowPrivilegeEscalation: false\n            readOnlyRootFilesystem: true\n            capabilities: {drop: [ALL]}\n"+
		"          resources:\n            requests: {cpu: 10m, memory: 32Mi}\n            limits: {memory: 64Mi}\n"+
		"          volumeMounts:\n            - {name: ringway-gossip, mountPath: /run/secret, readOnly: true}\n            - {name: ringway-state, mountPath: /var/lib/ringway}\n"),
	gossipOnly("        ", "- name: ringway-gossip\n          secret: {secretName: ringway-gossip, defaultMode: 0444}\n"),
	gossipOnly("        ", "- name: ringway-state\n          emptyDir: {medium: Memory, sizeLimit: 1Mi}\n"),
}

const (
	join       = "            - {name: RINGWAY_JOIN, value: \"dns+relays.ringway.svc.cluster.local:7400\"}\n"
	gossipAddr = "            - {name: RINGWAY_GOSSIP_ADDR, value: \"[$(POD_IP)]:7401\"}\n"
	adminMount = "            - {name: ringway-admin, mountPath: /run/admin, readOnly: true}\n"
	stateMount = "            - {name: ringway-state, mountPath: /var/lib/ringway}\n"
)

// gossipOnly leaves lines out of workers that attach.
func gossipOnly(indent, lines string) edit {
	return edit{indent + lines, 1, indent + "{{- if not .Values.example.attach }}\n" + indent + lines + indent + "{{- end }}\n"}
}

// replaceable are the variables of the manifests that settings may replace.
var replaceable = []string{"RINGWAY_DATACENTER", "RINGWAY_REGION", "RINGWAY_READY_RELAYS", "RINGWAY_INGRESS_ADDR"}

// replaced leaves a variable out if the settings of the section have it.
func replaced(section, name, rest string) edit {
	line := "            - {name: " + name + ", " + rest + "}\n"
	return edit{line, 1, "            {{- if not (hasKey .Values." + section + ".settings \"" + name + "\") }}\n" + line + "            {{- end }}\n"}
}

// ofNode is a label that Kubernetes copies from the node to the pod.
func ofNode(label string) string {
	return `valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/` + label + `']"}}`
}

// workload has the edits that relays and the example share, with the values of the section.
func workload(section, role string) []edit {
	replicas, budget, labels := "  replicas: 3\n", "# Each worker has 3 relays", "{app.kubernetes.io/name: relay, app.kubernetes.io/part-of: ringway}"
	if section == "example" {
		replicas, budget, labels = "  replicas: 9\n", "apiVersion: policy/v1\n", "{app.kubernetes.io/name: echo}"
	}
	last := "AlwaysAllow\n  selector:\n    matchLabels: " + labels + "\n"
	const links, log = "      enableServiceLinks: false", "            - {name: RINGWAY_LOG_FORMAT, value: json}\n"
	pod := optional("      ", "imagePullSecrets", "image.pullSecrets")
	for _, key := range []string{"nodeSelector", "tolerations", "affinity"} {
		pod += optional("      ", key, section+"."+key)
	}
	counted := "  replicas: " + value(section+".replicas") + "\n"
	if section == "example" {
		counted = "  {{- if not .Values.example.autoscaling.enabled }}\n" + counted + "  {{- end }}\n"
	}
	return []edit{
		{replicas, 1, counted},
		{"\n" + links, 1, "\n" + pod + links},
		{"terminationGracePeriodSeconds: 330\n", 1, "terminationGracePeriodSeconds: " + value(section+".terminationGracePeriodSeconds") + "\n"},
		{"value: shop}", 1, "value: " + value("cluster") + "}"},
		{"value: prod}", 1, "value: " + value("environment") + "}"},
		{`"dns+relays.ringway.svc.cluster.local:7400"`, 1, text("dns+relays.%s.svc.%s:7400", ".Release.Namespace", ".Values.clusterDomain")},
		{`"ringway://role/` + role + `,ringway://cluster/shop,ringway://env/prod,ringway://node/${POD_NAME}"`, 1,
			text("ringway://role/"+role+",ringway://cluster/%s,ringway://env/%s,ringway://node/${POD_NAME}", ".Values.cluster", ".Values.environment")},
		{"issuer-name: ringway\n", 1, "issuer-name: " + value("issuer.name") + "\n"},
		{"secretName: ringway-gossip,", 1, "secretName: " + value("secrets.gossip") + ","},
		{"secretName: ringway-admin,", 1, "secretName: " + value("secrets.admin") + ","},
		{log, 1, log + "            {{- range $name, $value := .Values." + section + ".settings }}\n" +
			"            - {name: {{ toJson $name }}, value: {{ toJson $value }}}\n            {{- end }}\n"},
		replaced(section, "RINGWAY_DATACENTER", ofNode("zone")),
		replaced(section, "RINGWAY_REGION", ofNode("region")),
		// The budget is the last object of both files.
		{"---\n" + budget, 1, "{{- if .Values." + section + ".podDisruptionBudget.enabled }}\n---\n" + budget},
		{last, 1, last + "{{- end }}\n"},
		{"  maxUnavailable: 1\n", 1, "  maxUnavailable: " + value(section+".podDisruptionBudget.maxUnavailable") + "\n"},
	}
}
