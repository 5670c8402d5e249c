package render

import (
	"encoding/json"
	"maps"
)

// row is a value, one that differs from its default, and all that it changes.
type row struct {
	path, value string // the value as JSON
	changes     map[string]string
}

const (
	relayPod  = "StatefulSet/relay spec.template.spec."
	workerPod = "Deployment/echo spec.template.spec."
	relayEnv  = relayPod + "containers[relay].env"
	sidecar   = workerPod + "initContainers[ringway-worker]."
	workerEnv = sidecar + "env"
	relayCSI  = relayPod + "volumes[tls].csi.volumeAttributes.csi.cert-manager.io/"
	workerCSI = workerPod + "volumes[ringway-tls].csi.volumeAttributes.csi.cert-manager.io/"
)

// both are changes of relays and of the example.
func both(name, leaf string) map[string]string {
	return map[string]string{relayPod + name: leaf, workerPod + name: leaf}
}

func one(name, leaf string) map[string]string { return map[string]string{name: leaf} }

// gone are leaves that are not there any more.
func gone(at string, leaves ...string) map[string]string {
	out := map[string]string{}
	for _, leaf := range leaves {
		out[at+leaf] = "gone"
	}
	return out
}

func join(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

func images(repository, tag string) map[string]string {
	return map[string]string{
		relayPod + "initContainers[keys].image":          `"` + repository + "-relay:" + tag + `"`,
		relayPod + "containers[relay].image":             `"` + repository + "-relay:" + tag + `"`,
		workerPod + "initContainers[ringway-keys].image": `"` + repository + "-relay:" + tag + `"`,
		sidecar + "image":                                `"` + repository + "-worker:" + tag + `"`,
		workerPod + "containers[echo].image":             `"` + repository + "-echo:" + tag + `"`,
	}
}

// optional are values with which the chart has all objects that it leaves out by default: monitors of
// one kind, and the autoscaler.
func optional(monitors string) map[string]any {
	return map[string]any{"monitoring": map[string]any{monitors: true}, "example": map[string]any{"autoscaling": map[string]any{"enabled": true}}}
}

// optionalRows returns the rows of values that change objects that are left out by default.
func optionalRows(monitor, endpoints string) []row {
	const scaler = "HorizontalPodAutoscaler/echo spec."
	relays, workers := monitor+"/relay ", monitor+"/worker "
	return []row{
		{"monitoring.labels", `{"release": "prometheus"}`, map[string]string{relays + "metadata.labels.release": `"prometheus"`, workers + "metadata.labels.release": `"prometheus"`}},
		{"secrets.admin", `"t"`, map[string]string{
			relayPod + "volumes[admin].secret.secretName": `"t"`, workerPod + "volumes[ringway-admin].secret.secretName": `"t"`,
			relays + "spec." + endpoints + "[0].authorization.credentials.name": `"t"`, workers + "spec." + endpoints + "[0].authorization.credentials.name": `"t"`,
		}},
		{"example.enabled", `false`, map[string]string{"Deployment/echo": "gone", "ServiceAccount/echo": "gone", "PodDisruptionBudget/echo": "gone", "HorizontalPodAutoscaler/echo": "gone"}},
		{"example.service", `"billing"`, map[string]string{
			workerEnv + "[RINGWAY_SERVICE].value": `"billing=127.0.0.1:9000;check=http:/"`, scaler + "metrics[0].pods.metric.selector.matchLabels.service": `"billing"`,
		}},
		{"example.autoscaling.minReplicas", `2`, one(scaler+"minReplicas", "2")},
		{"example.autoscaling.maxReplicas", `50`, one(scaler+"maxReplicas", "50")},
		{"example.autoscaling.inFlight", `7`, one(scaler+"metrics[0].pods.target.averageValue", "7")},
	}
}

// attachedOnly are the changes of a pod whose worker attaches.
func attachedOnly(pod, sidecar string) map[string]string {
	return join(map[string]string{
		sidecar + "env[RINGWAY_ATTACH].name": `"RINGWAY_ATTACH"`, sidecar + "env[RINGWAY_ATTACH].value": `"dns+relays.ringway.svc.cluster.local:7420"`,
	}, gone(sidecar+"env[RINGWAY_JOIN]", ".name", ".value"), gone(sidecar+"env[RINGWAY_GOSSIP_ADDR]", ".name", ".value"), gone(sidecar+"env[RINGWAY_GOSSIP_KEY_FILE]", ".name", ".value"),
		gone(sidecar+"ports[gossip]", ".name", ".containerPort", ".protocol"), gone(sidecar+"ports[gossip-udp]", ".name", ".containerPort", ".protocol"),
		gone(sidecar+"volumeMounts[ringway-state]", ".name", ".mountPath"),
		gone(pod+"initContainers[ringway-keys]", ".name", ".image", ".args[0]", ".args[1]", ".args[2]", ".args[3]", ".securityContext.allowPrivilegeEscalation",
			".securityContext.readOnlyRootFilesystem", ".securityContext.capabilities.drop[0]", ".resources.requests.cpu", ".resources.requests.memory", ".resources.limits.memory",
			".volumeMounts[ringway-gossip].name", ".volumeMounts[ringway-gossip].mountPath", ".volumeMounts[ringway-gossip].readOnly", ".volumeMounts[ringway-state].name", ".volumeMounts[ringway-state].mountPath"),
		gone(pod+"volumes[ringway-gossip]", ".name", ".secret.secretName", ".secret.defaultMode"), gone(pod+"volumes[ringway-state]", ".name", ".emptyDir.medium", ".emptyDir.sizeLimit"),
	)
}

var rows = append(append([]row{
	{"cluster", `"bank"`, map[string]string{
		relayEnv + "[RINGWAY_CLUSTER].value":  `"bank"`,
		workerEnv + "[RINGWAY_CLUSTER].value": `"bank"`,
		relayCSI + "uri-sans":                 `"ringway://role/relay,ringway://cluster/bank,ringway://env/prod,ringway://node/${POD_NAME}"`,
		workerCSI + "uri-sans":                `"ringway://role/worker,ringway://cluster/bank,ringway://env/prod,ringway://node/${POD_NAME}"`,
	}},
	{"environment", `"test"`, map[string]string{
		relayEnv + "[RINGWAY_ENVIRONMENT].value":  `"test"`,
		workerEnv + "[RINGWAY_ENVIRONMENT].value": `"test"`,
		relayCSI + "uri-sans":                     `"ringway://role/relay,ringway://cluster/shop,ringway://env/test,ringway://node/${POD_NAME}"`,
		workerCSI + "uri-sans":                    `"ringway://role/worker,ringway://cluster/shop,ringway://env/test,ringway://node/${POD_NAME}"`,
	}},
	{"clusterDomain", `"k8s.internal"`, map[string]string{
		relayEnv + "[RINGWAY_JOIN].value":  `"dns+relays.ringway.svc.k8s.internal:7400"`,
		workerEnv + "[RINGWAY_JOIN].value": `"dns+relays.ringway.svc.k8s.internal:7400"`,
	}},
	{"image.repository", `"localhost:5000/ringway"`, images("localhost:5000/ringway", "devel")},
	{"image.tag", `"v2"`, images("registry.example.com/ringway", "v2")},
	{"image.pullSecrets", `[{"name": "registry"}]`, both("imagePullSecrets[registry].name", `"registry"`)},
	{"secrets.authority", `"a"`, one("Issuer/ringway spec.ca.secretName", `"a"`)},
	{"secrets.gossip", `"g"`, map[string]string{relayPod + "volumes[secret].secret.secretName": `"g"`, workerPod + "volumes[ringway-gossip].secret.secretName": `"g"`}},
	{"secrets.admin", `"t"`, map[string]string{relayPod + "volumes[admin].secret.secretName": `"t"`, workerPod + "volumes[ringway-admin].secret.secretName": `"t"`}},
	{"issuer.create", `false`, one("Issuer/ringway", "gone")},
	{"issuer.name", `"i"`, map[string]string{"Issuer/ringway": "gone", "Issuer/i": "added", relayCSI + "issuer-name": `"i"`, workerCSI + "issuer-name": `"i"`}},
	{"ingress.type", `"LoadBalancer"`, one("Service/ingress spec.type", `"LoadBalancer"`)},
	{"ingress.port", `8080`, one("Service/ingress spec.ports[http].port", "8080")},
	{"ingress.annotations", `{"a": "1"}`, one("Service/ingress metadata.annotations.a", `"1"`)},
	{"networkPolicy.enabled", `false`, map[string]string{"NetworkPolicy/relay": "gone", "NetworkPolicy/worker": "gone"}},
	{"networkPolicy.clients", `[{"ipBlock": {"cidr": "10.0.0.0/8"}}]`, map[string]string{
		"NetworkPolicy/relay spec.ingress[1].from[0].namespaceSelector": "gone",
		"NetworkPolicy/relay spec.ingress[1].from[0].ipBlock.cidr":      `"10.0.0.0/8"`,
	}},
	{"networkPolicy.egress", `[{"ports": [{"port": 4318}]}]`, map[string]string{
		"NetworkPolicy/relay spec.egress[4].ports[0].port": "4318",
	}},
	{"networkPolicy.workers", `[{"ports": [{"port": 8080}]}]`, map[string]string{
		"NetworkPolicy/worker spec.ingress[3].ports[0].port": "8080",
	}},
	{"networkPolicy.monitoringNamespace", `"metrics"`, map[string]string{
		"NetworkPolicy/relay spec.ingress[2].from[1].namespaceSelector.matchLabels.kubernetes.io/metadata.name":  `"metrics"`,
		"NetworkPolicy/worker spec.ingress[2].from[0].namespaceSelector.matchLabels.kubernetes.io/metadata.name": `"metrics"`,
	}},
	{"monitoring.podMonitors", `true`, map[string]string{"PodMonitor/relay": "added", "PodMonitor/worker": "added"}},
	{"monitoring.serviceMonitors", `true`, map[string]string{
		"ServiceMonitor/relay": "added", "ServiceMonitor/worker": "added", "Service/relay-metrics": "added", "Service/worker-metrics": "added",
	}},
	{"example.autoscaling.enabled", `true`, map[string]string{"HorizontalPodAutoscaler/echo": "added", "Deployment/echo spec.replicas": "gone"}},
	{"example.enabled", `false`, map[string]string{"Deployment/echo": "gone", "ServiceAccount/echo": "gone", "PodDisruptionBudget/echo": "gone"}},
	{"example.attach", `true`, attachedOnly(workerPod, sidecar)},
	{"example.service", `"billing"`, one(workerEnv+"[RINGWAY_SERVICE].value", `"billing=127.0.0.1:9000;check=http:/"`)},
	{"example.port", `9001`, map[string]string{
		workerEnv + "[RINGWAY_SERVICE].value":  `"echo=127.0.0.1:9001;check=http:/"`,
		workerPod + "containers[echo].args[1]": `"127.0.0.1:9001"`,
	}},
	{"relays.config", `{"blocks": [{"caller": "a", "service": "b", "until": "2026-08-01T10:00:00Z"}]}`, map[string]string{
		"ConfigMap/relay": "added", relayEnv + "[RINGWAY_CONFIG].name": `"RINGWAY_CONFIG"`, relayEnv + "[RINGWAY_CONFIG].value": `"/etc/ringway/relay.yaml"`,
		relayPod + "containers[relay].volumeMounts[config].name": `"config"`, relayPod + "containers[relay].volumeMounts[config].mountPath": `"/etc/ringway"`,
		relayPod + "containers[relay].volumeMounts[config].readOnly": "true",
		relayPod + "volumes[config].name":                            `"config"`, relayPod + "volumes[config].configMap.name": `"relay"`,
	}},
	{"relays.config", `{"routes": [{"host": "shop.example.com", "service": "echo", "rate": "100/s"}]}`, map[string]string{
		"ConfigMap/relay": "added", relayEnv + "[RINGWAY_CONFIG].name": `"RINGWAY_CONFIG"`, relayEnv + "[RINGWAY_CONFIG].value": `"/etc/ringway/relay.yaml"`,
		relayPod + "containers[relay].volumeMounts[config].name": `"config"`, relayPod + "containers[relay].volumeMounts[config].mountPath": `"/etc/ringway"`,
		relayPod + "containers[relay].volumeMounts[config].readOnly": "true",
		relayPod + "volumes[config].name":                            `"config"`, relayPod + "volumes[config].configMap.name": `"relay"`,
	}},
	{"relays.extraVolumes", `[{"name": "ingress", "secret": {"secretName": "shop-tls"}}]`, map[string]string{
		relayPod + "volumes[ingress].name": `"ingress"`, relayPod + "volumes[ingress].secret.secretName": `"shop-tls"`,
	}},
	{"relays.extraVolumeMounts", `[{"name": "ingress", "mountPath": "/run/ingress"}]`, map[string]string{
		relayPod + "containers[relay].volumeMounts[ingress].name": `"ingress"`, relayPod + "containers[relay].volumeMounts[ingress].mountPath": `"/run/ingress"`,
	}},
	{"relays.settings", `{"RINGWAY_INGRESS_ADDR": "tls://[$(POD_IP)]:7410", "RINGWAY_INGRESS_TLS_CERT": "/run/ingress/tls.crt"}`, map[string]string{
		relayEnv + "[RINGWAY_INGRESS_ADDR].value":    `"tls://[$(POD_IP)]:7410"`,
		relayEnv + "[RINGWAY_INGRESS_TLS_CERT].name": `"RINGWAY_INGRESS_TLS_CERT"`, relayEnv + "[RINGWAY_INGRESS_TLS_CERT].value": `"/run/ingress/tls.crt"`,
	}},
	{"example.settings", `{"RINGWAY_READY_RELAYS": "3"}`, one(workerEnv+"[RINGWAY_READY_RELAYS].value", `"3"`)},
}, workload("relays", "StatefulSet/relay", "PodDisruptionBudget/relay", "containers[relay]")...), workload("example", "Deployment/echo", "PodDisruptionBudget/echo", "initContainers[ringway-worker]")...)

// workload are the rows that relays and the example share.
func workload(section, object, budget, container string) []row {
	pod := object + " spec.template.spec."
	resources := pod + container + ".resources."
	env := pod + container + ".env"
	return []row{
		{section + ".replicas", `5`, one(object+" spec.replicas", "5")},
		{section + ".settings", `{"RINGWAY_LOG_LEVEL": "debug", "RINGWAY_ADVERTISE_ADDR": "$(POD_IP):1"}`, map[string]string{
			env + "[RINGWAY_LOG_LEVEL].name": `"RINGWAY_LOG_LEVEL"`, env + "[RINGWAY_LOG_LEVEL].value": `"debug"`,
			env + "[RINGWAY_ADVERTISE_ADDR].name": `"RINGWAY_ADVERTISE_ADDR"`, env + "[RINGWAY_ADVERTISE_ADDR].value": `"$(POD_IP):1"`,
		}},
		// An empty value is none: it takes the zone of the node away.
		{section + ".settings", `{"RINGWAY_DATACENTER": "a", "RINGWAY_REGION": ""}`, join(
			one(env+"[RINGWAY_DATACENTER].value", `"a"`), gone(env+"[RINGWAY_DATACENTER]", ".valueFrom.fieldRef.fieldPath"),
			one(env+"[RINGWAY_REGION].value", `""`), gone(env+"[RINGWAY_REGION]", ".valueFrom.fieldRef.fieldPath"))},
		{section + ".resources", `{"requests": {"cpu": "2"}, "limits": {"memory": "2Gi"}}`, map[string]string{
			resources + "requests.cpu": `"2"`, resources + "limits.memory": `"2Gi"`,
		}},
		{section + ".terminationGracePeriodSeconds", `1830`, one(pod+"terminationGracePeriodSeconds", "1830")},
		{section + ".nodeSelector", `{"pool": "edge"}`, one(pod+"nodeSelector.pool", `"edge"`)},
		{section + ".tolerations", `[{"key": "edge", "operator": "Exists"}]`, join(one(pod+"tolerations[0].key", `"edge"`), one(pod+"tolerations[0].operator", `"Exists"`))},
		{section + ".affinity", `{"podAntiAffinity": {}}`, one(pod+"affinity.podAntiAffinity", "{}")},
		{section + ".podDisruptionBudget.enabled", `false`, one(budget, "gone")},
		{section + ".podDisruptionBudget.maxUnavailable", `2`, one(budget+" spec.maxUnavailable", "2")},
	}
}

// quoted is a text as a leaf.
func quoted(text string) string {
	leaf, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string has no errors
	}
	return string(leaf)
}
