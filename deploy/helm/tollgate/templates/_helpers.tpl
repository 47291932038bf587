{{/* Names, labels and the parts that all pods share. */}}
{{- define "tollgate.name" -}}
{{- printf "%s-%s" (.root.Release.Name | trunc 40 | trimSuffix "-") .part -}}
{{- end }}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: tollgate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "tollgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Variables of a process: common settings, its own, those of the chart, and a file for each secret. */}}
{{- define "tollgate.env" -}}
{{- $settings := merge (dict) .chart .values.settings .root.Values.settings }}
{{- range $name, $value := $settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- range $name, $key := .values.secrets }}
{{- if $key }}
- name: {{ $name }}_FILE
  value: /run/secrets/tollgate/{{ $key }}
{{- end }}
{{- end }}
{{- end }}

{{/* The secrets of a process as files. */}}
{{- define "tollgate.secrets" -}}
- name: secrets
  secret:
    secretName: {{ .root.Values.existingSecret }}
    defaultMode: 0440
    items:
      {{- range $name, $key := .values.secrets }}
      {{- if $key }}
      - { key: {{ $key }}, path: {{ $key }} }
      {{- end }}
      {{- end }}
- name: tmp
  emptyDir: { sizeLimit: 64Mi }
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tollgate.mounts" -}}
- { name: secrets, mountPath: /run/secrets/tollgate, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- end }}

{{- define "tollgate.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tollgate.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{/* Where a pod runs: the values of its part, and replicas on different nodes if possible. */}}
{{- define "tollgate.placement" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "tollgate.selector" . | nindent 8 }}
{{- include "tollgate.nodes" . }}
{{- end }}

{{- define "tollgate.nodes" -}}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Liveness and start by /healthz, readiness by `.ready`. */}}
{{- define "tollgate.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: admin }
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: admin }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: {{ .ready }}, port: admin }
  periodSeconds: 3
  timeoutSeconds: 2
# Endpoints forget the pod before it stops to accept.
lifecycle:
  preStop:
    exec: { command: [sleep, '5'] }
{{- end }}

{{/* One container of ours. */}}
{{- define "tollgate.container" -}}
- name: {{ .part }}
  image: {{ include "tollgate.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [{{ .part }}]
  env: {{ include "tollgate.env" . | nindent 4 }}
  ports:
    {{- range $name, $port := .ports }}
    - { name: {{ $name }}, containerPort: {{ $port }} }
    {{- end }}
    - { name: admin, containerPort: 9464 }
  {{- include "tollgate.probes" . | nindent 2 }}
  resources: {{ toYaml .values.resources | nindent 4 }}
  {{- include "tollgate.containerSecurity" . | nindent 2 }}
  volumeMounts:
    {{- include "tollgate.mounts" . | nindent 4 }}
    {{- with .mounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "tollgate.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "tollgate.name" . }}
  labels: {{ include "tollgate.labels" . | nindent 4 }}
spec:
  {{- if not (dig "autoscaling" "enabled" false .values) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  selector:
    matchLabels: {{ include "tollgate.selector" . | nindent 6 }}
  strategy:
    rollingUpdate: { maxUnavailable: 0, maxSurge: 1 }
  template:
    metadata:
      labels: {{ include "tollgate.labels" . | nindent 8 }}
      {{- with .root.Values.podAnnotations }}
      annotations: {{ toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "tollgate.podSecurity" .root | nindent 6 }}
      {{- include "tollgate.placement" . | nindent 6 }}
      terminationGracePeriodSeconds: 20
      containers:
        {{- include "tollgate.container" . | nindent 8 }}
      volumes:
        {{- include "tollgate.secrets" . | nindent 8 }}
{{- end }}

{{- define "tollgate.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "tollgate.name" . }}
  labels: {{ include "tollgate.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{ include "tollgate.selector" . | nindent 6 }}
{{- end }}

{{- define "tollgate.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "tollgate.name" . }}
  labels: {{ include "tollgate.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: {{ .kind }}
    name: {{ include "tollgate.name" . }}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    # The container's share, so that the signer beside a sidecar does not count.
    - type: ContainerResource
      containerResource:
        name: cpu
        container: {{ .part }}
        target: { type: Utilization, averageUtilization: {{ .values.autoscaling.cpuPercent }} }
{{- end }}

{{/* The chart's own settings of each process. */}}
{{- define "tollgate.coreTarget" -}}
{{ include "tollgate.name" (dict "root" . "part" "core") }}:50051
{{- end }}
