{{/* go-livepeer's remote signer. Its flags are those of deploy/docker/compose.yaml. */}}
{{- define "tollgate.signer" -}}
{{- with .Values.signer }}
- name: signer
  image: {{ .image }}
  command:
    - sh
    - -ec
    - |
      # Without a folder with a key file, livepeer signs with a new account, which has no deposit.
      [ -n "$(ls /signer/keystore/)" ] || { echo 'no key file in /signer/keystore' >&2; exit 1; }
      # The flag's name in capitals; the secret is not in the process list. During a rotation the
      # first secret counts.
      secret="$(cut -d, -f1 /run/secrets/signer/webhook-secret)"
      export LP_REMOTESIGNERWEBHOOKHEADERS="Authorization:Bearer $secret"
      exec /usr/local/bin/livepeer "$@"
    - signer
  args:
    - -remoteSigner
    - -network={{ .network }}
    - -ethAcctAddr={{ required "signer.ethAddress is required" .ethAddress }}
    - -ethKeystorePath=/signer/keystore
    - -ethPassword=/signer/password
    - -datadir=/data
    - -httpAddr=0.0.0.0:8935
    - -cliAddr=127.0.0.1:4935
    - -remoteSignerWebhookUrl=http://127.0.0.1:8090/authorize
    {{- with $.Values.kafka.brokers }}
    - -monitor
    # The signer takes one address.
    - -kafkaBootstrapServers={{ splitList "," . | first | trim }}
    - -kafkaGatewayTopic={{ $.Values.kafka.topic }}
    {{- end }}
    {{- range .args }}
    - {{ . | quote }}
    {{- end }}
  # livepeer takes flags from variables, too, which no process list shows.
  env:
    - name: LP_ETHURL
      {{- if .ethUrl }}
      value: {{ .ethUrl | quote }}
      {{- else }}
      valueFrom: { secretKeyRef: { name: {{ .keySecret }}, key: eth-url } }
      {{- end }}
    {{- if $.Values.kafka.brokers }}
    - name: LP_KAFKAUSER
      valueFrom: { secretKeyRef: { name: {{ .keySecret }}, key: kafka-user, optional: true } }
    - name: LP_KAFKAPASSWORD
      valueFrom: { secretKeyRef: { name: {{ .keySecret }}, key: kafka-password, optional: true } }
    {{- end }}
  ports:
    - { name: signer, containerPort: 8935 }
  startupProbe:
    tcpSocket: { port: signer }
    periodSeconds: 2
    failureThreshold: 90
  readinessProbe:
    tcpSocket: { port: signer }
    periodSeconds: 3
  livenessProbe:
    tcpSocket: { port: signer }
    periodSeconds: 10
    failureThreshold: 6
  lifecycle:
    preStop:
      exec: { command: [sleep, '5'] }
  resources: {{ toYaml .resources | nindent 4 }}
  {{- include "tollgate.containerSecurity" $ | nindent 2 }}
  volumeMounts:
    - name: secrets
      mountPath: /run/secrets/signer/webhook-secret
      subPath: {{ $.Values.sidecar.secrets.WEBHOOK_SECRET }}
      readOnly: true
    # livepeer reads regular files only. In a mounted Secret each key is a symbolic link, with subPath a file.
    - { name: signer-key, mountPath: /signer/keystore/key.json, subPath: keystore, readOnly: true }
    - { name: signer-key, mountPath: /signer/password, subPath: password, readOnly: true }
    - { name: signer-data, mountPath: /data }
    - { name: tmp, mountPath: /tmp }
{{- end }}
{{- end }}
