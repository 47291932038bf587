import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/**
 * Runs the shell script that starts the signer in compose.yaml and in the chart, with the folder
 * `signer` as /signer. In place of livepeer, a program prints the webhook's header and its flags.
 */
export function startSigner(script: string, files: { signer: string; secret: string }) {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-signer-'))
  try {
    const livepeer = join(folder, 'livepeer')
    writeFileSync(livepeer, '#!/bin/sh\necho "$LP_REMOTESIGNERWEBHOOKHEADERS $*"\n')
    chmodSync(livepeer, 0o755)
    const local = script
      .replaceAll('/usr/local/bin/livepeer', livepeer)
      .replaceAll(/\/run\/secrets\/(signer\/)?webhook-secret/g, files.secret)
      .replaceAll('/signer/keystore', join(files.signer, 'keystore'))
    const args = ['-ec', local, 'signer', '-one', '-two']
    const { status, stdout, stderr } = spawnSync('sh', args, { encoding: 'utf8' })
    return { code: status, text: stdout + stderr }
  } finally {
    rmSync(folder, { recursive: true })
  }
}
