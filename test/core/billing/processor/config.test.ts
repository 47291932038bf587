import { describe, expect, it } from 'vitest'
import { readProcessorConfig } from '../../../../core/billing/processor/config.ts'
import { openProcessor } from '../../../../core/billing/processor/open.ts'
import { currentValue } from '../../../../core/lib/settings/reloadable.ts'
import { createEnvReader } from '../../../../core/lib/env.ts'

function read(variables: Record<string, string>) {
  const env = createEnvReader(variables)
  const config = readProcessorConfig(env)
  return { config, problems: env.problems, warnings: env.warnings, settings: env.settings }
}

const liveKey = 'sk_live_0123456789'
const testKey = 'sk_test_0123456789'

describe('settings of the payment processor', () => {
  it('are none by default', async () => {
    const { config, problems } = read({})
    expect(problems).toEqual([])
    expect(config).toEqual({ kind: 'none' })
    expect(await openProcessor(config, () => new Date())).toBeNull()
  })

  it('are Stripe where its live key is set', async () => {
    const { config, problems } = read({
      STRIPE_SECRET_KEY: liveKey,
      STRIPE_TEST_SECRET_KEY: 'rk_test_0123456789',
      STRIPE_WEBHOOK_SECRETS: 'whsec_own_0123456789, whsec_connect_0123456789',
    })
    expect(problems).toEqual([])
    if (config?.kind !== 'stripe') throw new Error('the processor is not Stripe')
    const { live, test, apiUrl } = config.stripe
    expect(apiUrl).toBeNull()
    expect([live, test].map((plane) => plane && currentValue(plane.secretKey))).toEqual([
      liveKey,
      'rk_test_0123456789',
    ])
    expect(live && currentValue(live.webhookSecrets)).toEqual([
      'whsec_own_0123456789',
      'whsec_connect_0123456789',
    ])
    const processor = await openProcessor(config, () => new Date())
    expect(processor).toMatchObject({ kind: 'stripe', planes: ['live', 'test'] })
  })

  it('take the test plane alone', async () => {
    const { config, problems } = read({
      PAYMENT_PROCESSOR: 'stripe',
      STRIPE_TEST_SECRET_KEY: testKey,
    })
    expect(problems).toEqual([])
    expect((await openProcessor(config, () => new Date()))?.planes).toEqual(['test'])
  })

  it.each([
    [{ STRIPE_SECRET_KEY: testKey }, 'STRIPE_SECRET_KEY holds a key of the test plane'],
    [{ STRIPE_SECRET_KEY: 'rk_test_0123' }, 'STRIPE_SECRET_KEY holds a key of the test plane'],
    [{ STRIPE_TEST_SECRET_KEY: liveKey }, 'STRIPE_TEST_SECRET_KEY holds a key of the live plane'],
    [{ STRIPE_SECRET_KEY: 'pk_live_0123' }, 'must be a key of Stripe that starts with sk_live_'],
    [{ STRIPE_SECRET_KEY: 'sk_live_01 23' }, 'must be a key of Stripe'],
    [{ PAYMENT_PROCESSOR: 'stripe' }, 'needs STRIPE_SECRET_KEY, STRIPE_TEST_SECRET_KEY'],
    [{ STRIPE_TIMEOUT_MS: '25001' }, 'STRIPE_TIMEOUT_MS must be'],
    [{ PAYMENT_PROCESSOR: 'paypal' }, 'PAYMENT_PROCESSOR must be one of'],
    [{ STRIPE_WEBHOOK_SECRETS: 'secret' }, 'STRIPE_WEBHOOK_SECRETS must hold signing secrets'],
    [{ STRIPE_TEST_WEBHOOK_SECRETS: 'whsec_' }, 'STRIPE_TEST_WEBHOOK_SECRETS must hold'],
    [{ STRIPE_API_URL: 'http://stripe.example' }, 'STRIPE_API_URL must start with https://'],
    [{ STRIPE_API_URL: 'https://stripe.example/v1' }, 'without path'],
    [{ STRIPE_API_URL: 'ftp://stripe.example' }, 'STRIPE_API_URL must be a URL'],
  ])('refuse %o', (variables, problem) => {
    expect(read(variables).problems.join('\n')).toContain(problem)
  })

  it('warn of missing webhook secrets and of a test key without effect', () => {
    expect(read({ STRIPE_SECRET_KEY: liveKey }).warnings.join()).toContain('STRIPE_WEBHOOK_SECRETS')
    expect(read({ STRIPE_TEST_SECRET_KEY: testKey }).warnings.join()).toContain('no effect')
  })

  it('are shown without secrets', () => {
    const { settings } = read({ STRIPE_SECRET_KEY: liveKey })
    const secret = settings.filter(({ secret }) => secret).map(({ name }) => name)
    expect(secret).toEqual([
      'STRIPE_SECRET_KEY',
      'STRIPE_WEBHOOK_SECRETS',
      'STRIPE_TEST_SECRET_KEY',
      'STRIPE_TEST_WEBHOOK_SECRETS',
    ])
  })
})
