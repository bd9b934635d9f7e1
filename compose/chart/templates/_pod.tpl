{{/*
What pods of all programs have. A program is a dict: root; component; values, its part of the values; secrets, the names of those that it
uses; files, further ones, as in headwater.files; spark, whether it starts Spark's work.
*/}}

{{/*
The secrets of a program as files, as JSON: {"files": [{variable, name, key, path}]}. variable: gets the path of the file.
*/}}
{{- define "headwater.files" -}}
{{- $values := .root.Values -}}
{{- $account := .account | default .values.account -}}
{{- $variables := dict "kafkaPassword" "HEADWATER_KAFKA_PASSWORD_FILE" "postgres" "HEADWATER_POSTGRES_FILE" "elasticsearch" "HEADWATER_ELASTICSEARCH_FILE" "valkey" "HEADWATER_VALKEY_FILE" "connect" "HEADWATER_CONNECT_FILE" "personKeys" "HEADWATER_KEYS_FILE" "masterKey" "HEADWATER_MASTER_KEY_FILE" -}}
{{- $files := list -}}
{{- range .secrets -}}
{{- $shared := get $values.secrets . -}}
{{- $own := get $account.secrets . | default dict -}}
{{- $used := ternary $own $shared (not (empty $own.name)) -}}
{{- if $used.name -}}
{{- $files = append $files (dict "variable" (get $variables .) "name" $used.name "key" ($used.key | default $shared.key) "path" (kebabcase .)) -}}
{{- end -}}
{{- end -}}
{{- with $values.kafka.ca -}}
{{- if .name -}}
{{- $files = append $files (dict "variable" "HEADWATER_KAFKA_CA" "name" .name "key" .key "path" "kafka/ca.crt") -}}
{{- end -}}
{{- end -}}
{{- $own := $account.kafkaCertificate | default dict -}}
{{- $used := ternary (merge dict $own $values.kafka.certificate) $values.kafka.certificate (not (empty $own.name)) -}}
{{- if $used.name -}}
{{- $files = append $files (dict "variable" "HEADWATER_KAFKA_CERTIFICATE" "name" $used.name "key" $used.certificate "path" "kafka/tls.crt") -}}
{{- $files = append $files (dict "variable" "HEADWATER_KAFKA_KEY" "name" $used.name "key" $used.privateKey "path" "kafka/tls.key") -}}
{{- end -}}
{{- toJson (dict "files" (concat $files (.files | default list))) -}}
{{- end }}

{{/* The variables of a program. */}}
{{- define "headwater.env" -}}
{{- $values := .root.Values -}}
{{- $files := (include "headwater.files" . | fromJson).files -}}
{{- $account := .account | default .values.account -}}
- name: HEADWATER_ENVIRONMENT
  value: {{ $values.environment | quote }}
- name: HEADWATER_MODULES
  value: {{ required "set modules to what HEADWATER_MODULES should have" (join "," $values.modules) | quote }}
- name: HEADWATER_LOG_LEVEL
  value: {{ $values.log.level | quote }}
- name: HEADWATER_LOG_FORMAT
  value: {{ $values.log.format | quote }}
- name: HEADWATER_KAFKA
  value: {{ required "set kafka.servers to host:port of the brokers" $values.kafka.servers | quote }}
- name: HEADWATER_KAFKA_SECURITY
  value: {{ $values.kafka.security | quote }}
{{- if hasPrefix "SASL_" $values.kafka.security }}
- name: HEADWATER_KAFKA_MECHANISM
  value: {{ $values.kafka.mechanism | quote }}
- name: HEADWATER_KAFKA_USER
  value: {{ required (printf "set kafka.user, or account.kafkaUser of %s" .component) ($account.kafkaUser | default $values.kafka.user) | quote }}
{{- end }}
- name: HEADWATER_PARTITIONS
  value: {{ $values.kafka.partitions | quote }}
- name: HEADWATER_PATCH_PARTITIONS
  value: {{ $values.kafka.patchPartitions | quote }}
- name: HEADWATER_REPLICATION
  value: {{ $values.kafka.replication | quote }}
- name: HEADWATER_RECEIPTS_DAYS
  value: {{ $values.kafka.receiptsDays | quote }}
{{- range $files }}
- name: {{ .variable }}
  value: /run/secrets/headwater/{{ .path }}
{{- end }}
{{- $given := list }}
{{- range $files }}{{ $given = append $given .variable }}{{ end }}
{{- include "headwater.refusals" (dict "root" .root "component" .component "given" $given "user" ($account.kafkaUser | default $values.kafka.user)) }}
{{- if and (has "postgres" .secrets) (not (or $values.postgres.address (has "HEADWATER_POSTGRES_FILE" $given))) }}
{{- fail (printf "set secrets.postgres.name, postgres.address, or account.secrets.postgres.name of %s: the registry of views is in PostgreSQL" .component) }}
{{- end }}
{{- range .secrets }}
{{- $variable := printf "HEADWATER_%s" (upper .) }}
{{- $address := (get $values . | default dict).address }}
{{- if and $address (not (has (printf "%s_FILE" $variable) $given)) }}
- name: {{ $variable }}
  value: {{ $address | quote }}
{{- end }}
{{- end }}
{{- if and $values.metrics.enabled (has .component (list "api" "handler" "projections" "sources")) }}
- name: HEADWATER_METRICS_PORT
  value: {{ $values.metrics.port | quote }}
{{- end }}
{{- if .spark }}
{{ include "headwater.sparkEnv" .root }}
{{- end }}
{{- range $name, $value := merge dict .values.settings $values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Refuses what a program would refuse at its start. Takes: root, component, given, the variables with files, and user, of Kafka. */}}
{{- define "headwater.refusals" -}}
{{- $security := .root.Values.kafka.security }}
{{- $has := dict }}
{{- range .given }}{{ $_ := set $has . true }}{{ end }}
{{- if hasPrefix "SASL_" $security }}
{{- if not $has.HEADWATER_KAFKA_PASSWORD_FILE }}
{{- fail (printf "set secrets.kafkaPassword.name, or account.secrets.kafkaPassword.name of %s: kafka.security is %s" .component $security) }}
{{- end }}
{{- else if or $has.HEADWATER_KAFKA_PASSWORD_FILE .user }}
{{- fail (printf "%s uses no user and no password: set another kafka.security, or remove those of Kafka from secrets, kafka and account of %s" $security .component) }}
{{- end }}
{{- if and (not (hasSuffix "SSL" $security)) (or $has.HEADWATER_KAFKA_CA $has.HEADWATER_KAFKA_CERTIFICATE) }}
{{- fail (printf "%s uses no certificates: set another kafka.security, or remove kafka.ca, kafka.certificate, and account.kafkaCertificate of %s" $security .component) }}
{{- end }}
{{- if and $has.HEADWATER_KEYS_FILE (not $has.HEADWATER_MASTER_KEY_FILE) }}
{{- fail (printf "set secrets.masterKey, too, or account.secrets.masterKey of %s: keys of persons are sealed with it" .component) }}
{{- end }}
{{- if and $has.HEADWATER_MASTER_KEY_FILE (not $has.HEADWATER_KEYS_FILE) }}
{{- fail (printf "set secrets.personKeys, too, or account.secrets.personKeys of %s: the master key seals nothing else" .component) }}
{{- end }}
{{- if and (eq .component "projections") .root.Values.projections.clearColumns (not $has.HEADWATER_KEYS_FILE) }}
{{- fail "projections.clearColumns needs secrets.personKeys and secrets.masterKey, or those of projections.account" }}
{{- end }}
{{- end }}

{{/* Where Spark's work runs, and where stream views keep their state. Takes the root. */}}
{{- define "headwater.sparkEnv" -}}
- name: HEADWATER_SPARK_MEMORY
  value: {{ .Values.spark.memory | quote }}
{{- if .Values.spark.master }}
- name: SPARK_MASTER
  value: {{ .Values.spark.master | quote }}
{{- end }}
{{- if include "headwater.onCluster" . }}
# executors reach the pod by its address: not every pod has a name
- name: SPARK_LOCAL_HOSTNAME
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}
{{- if include "headwater.hasSparkConf" . }}
- name: SPARK_CONF_DIR
  value: /etc/headwater/spark
{{- end }}
{{- if .Values.checkpoints.location }}
- name: HEADWATER_CHECKPOINTS
  value: {{ .Values.checkpoints.location | quote }}
{{- end }}
{{- range $name, $secret := .Values.checkpoints.credentials }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret.name }}
      key: {{ $secret.key }}
{{- end }}
{{- end }}

{{/* Image, rights and mounts of a container. */}}
{{- define "headwater.container" -}}
image: {{ .image | default (include "headwater.image" .root) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- include "headwater.containerSecurity" . | nindent 2 }}
env:
  {{- include "headwater.env" . | nindent 2 }}
  {{- with .env }}
  {{- . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .values.resources | nindent 2 }}
volumeMounts:
  - name: state
    mountPath: /var/lib/headwater
  {{- if (include "headwater.files" . | fromJson).files }}
  - name: secrets
    mountPath: /run/secrets/headwater
    readOnly: true
  {{- end }}
  {{- if and .spark (include "headwater.hasSparkConf" .root) }}
  - name: spark
    mountPath: /etc/headwater/spark
    readOnly: true
  {{- end }}
  {{- if and .spark .root.Values.checkpoints.claim }}
  - name: checkpoints
    mountPath: {{ .root.Values.checkpoints.location }}
  {{- end }}
  {{- with .mounts }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "headwater.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "headwater.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
# files that only their owner may read stay so
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What a pod has beside its containers and volumes. */}}
{{- define "headwater.pod" -}}
{{- $talks := and .spark (include "headwater.onKubernetes" .root) -}}
serviceAccountName: {{ .serviceAccount | default (printf "%s-%s" (include "headwater.fullname" .root) .component) }}
automountServiceAccountToken: {{ ternary true false (not (empty $talks)) }}
# else a Service with the name of this one's API would set HEADWATER_API_PORT
enableServiceLinks: false
securityContext:
  {{- include "headwater.podSecurity" . | nindent 2 }}
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.scheduling }}
{{ toYaml . }}
{{- end }}
{{- if and .spread (not .values.scheduling.topologySpreadConstraints) }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "headwater.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* The volumes of a pod. emptyState: the size of a state that ends with the pod; without it, `state` is a claim. */}}
{{- define "headwater.volumes" -}}
{{- if .emptyState }}
- name: state
  emptyDir:
    sizeLimit: {{ .emptyState }}
{{- end }}
{{- with (include "headwater.files" . | fromJson).files }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          name: {{ .name }}
          items:
            - key: {{ .key }}
              path: {{ .path }}
      {{- end }}
{{- end }}
{{- if and .spark (include "headwater.hasSparkConf" .root) }}
- name: spark
  configMap:
    name: {{ include "headwater.fullname" .root }}-spark
{{- end }}
{{- if and .spark .root.Values.checkpoints.claim }}
- name: checkpoints
  persistentVolumeClaim:
    claimName: {{ .root.Values.checkpoints.claim }}
{{- end }}
{{- with .moreVolumes }}
{{ . }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The annotations of a pod; empty if there are none. */}}
{{- define "headwater.podAnnotations" -}}
{{- $found := deepCopy .values.podAnnotations -}}
{{- if and .root.Values.metrics.enabled .root.Values.metrics.annotations -}}
{{- $found = merge $found (dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .root.Values.metrics.port)) -}}
{{- end -}}
{{- if and .spark (include "headwater.hasSparkConf" .root) -}}
{{- /* Spark reads its file when it starts, so a change starts the pod again */ -}}
{{- $found = merge $found (dict "checksum/spark" (list .root.Values.spark .root.Values.checkpoints | toJson | sha256sum)) -}}
{{- end -}}
{{- with $found }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
