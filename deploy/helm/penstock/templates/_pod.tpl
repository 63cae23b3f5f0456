{{/* The deployment of one part. It gets root, name, part (its values), args (the command), and port (its number) or none, with probe: http or tcp. */}}
{{- define "penstock.deployment" -}}
{{- $of := merge (dict) .part (pick .root.Values "secret" "resources" "gracePeriod" "nodeSelector" "tolerations" "affinity" "podAnnotations") -}}
{{- $image := printf "%s:%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{- include "penstock.labels" . | nindent 4 }}
    app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
spec:
  replicas: {{ hasKey .part "replicas" | ternary .part.replicas 1 }}
  selector:
    matchLabels: {{- include "penstock.labels" . | nindent 6 }}
  strategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}
  template:
    metadata:
      labels: {{- include "penstock.labels" . | nindent 8 }}
      annotations:
        {{- if eq .port 9464 }}
        prometheus.io/scrape: "true"
        prometheus.io/port: "9464"
        {{- end }}
        {{- with .config }}
        checksum/config: {{ sha256sum . }} # another configuration starts new pods
        {{- end }}
        {{- with $of.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      terminationGracePeriodSeconds: {{ $of.gracePeriod }}
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $of.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $of.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $of.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "penstock.labels" . | nindent 14 }}
      containers:
        - name: penstock
          image: {{ .part.image | default $image | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{- concat .args (.part.args | default list) | toYaml | nindent 12 }}
          envFrom: [{secretRef: {name: {{ $of.secret }}}}]
          ports: [{name: {{ .probe }}, containerPort: {{ .port }}}]
          {{- if eq .probe "metrics" }}
          # Readiness is told and nothing is restarted for it: it says no because something has to be looked at.
          livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, failureThreshold: 6}
          readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 15, timeoutSeconds: 6}
          {{- else }}
          readinessProbe: {tcpSocket: {port: {{ .probe }}}, periodSeconds: 10}
          {{- end }}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          resources: {{- toYaml $of.resources | nindent 12 }}
          {{- if .config }}
          volumeMounts: [{name: config, mountPath: /etc/penstock, readOnly: true}]
      volumes: [{name: config, configMap: {name: {{ .root.Release.Name }}}}]
          {{- end }}
{{- end }}

{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}
