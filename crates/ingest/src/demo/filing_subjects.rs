//! The contents of made-up filings: the regulator's categories with their types and kinds, and templates for subjects.

use chrono::{Datelike, Days, NaiveDate};

use super::rng::DemoRng;
use super::vocabulary::{PLACE_ENDINGS, PLACE_ROOTS};

/// How the reference date of a filing relates to its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemoReferenceDate {
    /// The day of delivery or a few days before.
    Event,
    /// A meeting some weeks later.
    Meeting,
    /// The end of the last quarter.
    Quarter,
    /// The end of the last month.
    Month,
    /// The end of the year.
    Year,
}

pub struct CategoryTemplate {
    pub name: &'static str,
    pub weight: u64,
    pub reference_date: DemoReferenceDate,
    /// CVM's `Tipo` and `Especie`.
    pub types_and_kinds: &'static [(&'static str, &'static str)],
    pub subject_templates: &'static [&'static str],
}

/// This category has no protocols in any year.
pub const PROCEEDS_CATEGORY: &str = "Relatório Proventos";

const NO_TYPE_OR_KIND: &[(&str, &str)] = &[("", "")];

pub const CATEGORY_TEMPLATES: [CategoryTemplate; 24] = [
    CategoryTemplate {
        name: "Assembleia",
        weight: 260,
        reference_date: DemoReferenceDate::Meeting,
        types_and_kinds: &[
            ("AGO", "Ata"),
            ("AGO", "Edital de Convocação"),
            ("AGO", "Proposta da Administração"),
            ("AGO/E", "Ata"),
            ("AGO/E", "Edital de Convocação"),
            ("AGO/E", "Boletim de voto a distância"),
            ("AGO/E", "Manual para participação"),
            ("AGE", "Ata"),
            ("AGE", "Edital de Convocação"),
            ("AGE", "Proposta da Administração"),
            ("AGE", "Mapa Final de Votação"),
            ("AGDEB", "Ata"),
            ("AGDEB", "Edital de Convocação"),
            ("AGESP", "Ata"),
        ],
        subject_templates: &[
            "Eleição dos membros do {orgao} e fixação da remuneração global para {ano}",
            "Aprovação das contas dos administradores e destinação do lucro de {ano_anterior}",
            "Aumento do capital social em {valor} e reforma do Estatuto Social",
            "Deliberação sobre a {operacao} e autorização aos administradores",
            "Alteração das condições da {emissao} emissão de debêntures e {motivo}",
            "Ratificação da contratação dos avaliadores e aprovação da {operacao}",
            "Tomada das contas, exame das demonstrações e eleição do {orgao}",
        ],
    },
    CategoryTemplate {
        name: "Reunião da Administração",
        weight: 180,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: &[
            ("Conselho de Administração", "Ata"),
            ("Conselho de Administração", "Ata"),
            ("Conselho Fiscal", "Ata"),
            ("Conselho Fiscal", "Parecer"),
            ("Diretoria", "Ata"),
        ],
        subject_templates: &[
            "Eleição de {cargo} e composição da Diretoria para o próximo mandato",
            "Aprovação da {emissao} emissão de debêntures simples no valor de {valor}",
            "Aprovação das informações do {trimestre} e distribuição de {provento}",
            "Autorização para a {operacao} e celebração dos contratos definitivos",
            "Renúncia de {cargo} e eleição de substituto até a próxima assembleia",
            "Aprovação do programa de recompra de ações e das negociações em bolsa",
            "Prestação de garantias à {ligada} em operações com instituições financeiras",
        ],
    },
    CategoryTemplate {
        name: "Comunicado ao Mercado",
        weight: 170,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: &[
            ("Outros Comunicados Não Considerados Fatos Relevantes", ""),
            ("Outros Comunicados Não Considerados Fatos Relevantes", ""),
            ("Apresentações a analistas/agentes do mercado", ""),
            ("Esclarecimentos sobre questionamentos da CVM/B3", ""),
            ("Aquisição/Alienação de Participação Acionária", ""),
        ],
        subject_templates: &[
            "Aquisição de participação acionária relevante de {percentual} por fundos de investimento",
            "Alienação de ações ordinárias e redução da participação para {percentual}",
            "Apresentação dos resultados do {trimestre} a analistas e investidores",
            "Esclarecimentos sobre notícia publicada em {data} a respeito da {operacao}",
            "Conclusão da construção da {obra} e início das operações comerciais",
            "Teleconferência de divulgação dos resultados do {trimestre} com tradução simultânea",
            "Alteração do endereço da sede e dos canais de atendimento a investidores",
            "Classificação de risco atribuída à {emissao} emissão de debêntures da Companhia",
        ],
    },
    CategoryTemplate {
        name: "Dados Econômico-Financeiros",
        weight: 130,
        reference_date: DemoReferenceDate::Quarter,
        types_and_kinds: &[
            ("Demonstrações Financeiras Anuais Completas", ""),
            ("Demonstrações Financeiras Intermediárias", ""),
            ("Press-release", ""),
            ("Press-release", ""),
            ("Relatório de Agente Fiduciário", ""),
        ],
        subject_templates: &[
            "Resultados do {trimestre} com comentários sobre receitas e margens",
            "Demonstrações financeiras completas de {ano_anterior} com relatório dos auditores independentes",
            "Informações trimestrais revisadas, demonstrações e notas explicativas do {trimestre}",
            "Divulgação de resultados: crescimento de {percentual} nas vendas do {trimestre}",
            "Relatório anual do agente fiduciário da {emissao} emissão de debêntures",
        ],
    },
    CategoryTemplate {
        name: "Fato Relevante",
        weight: 60,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &[
            "Aquisição da totalidade das ações da {alvo} pelo valor de {valor}",
            "Assinatura de memorando de entendimentos não vinculante para a {operacao}",
            "Aprovação da {emissao} emissão de debêntures no montante de {valor}",
            "Pagamento de {provento} no montante total de {valor} em {ano}",
            "Projeções de investimentos e de produção para os próximos anos",
            "Renúncia de {cargo} e indicação de sucessor pelo {orgao}",
            "Programa de recompra de ações de emissão própria até {data}",
            "Decisão judicial sobre a {obra} e suspensão temporária das operações",
            "Oferta pública de distribuição primária de ações com esforços restritos",
        ],
    },
    CategoryTemplate {
        name: "Aviso aos Acionistas",
        weight: 60,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: &[("", ""), ("", ""), ("Outros avisos", "")],
        subject_templates: &[
            "Pagamento de {provento} aos acionistas inscritos em {data}",
            "Distribuição de {provento} relativos às posições acionárias do {trimestre}",
            "Prazo para o exercício do direito de preferência na subscrição de ações",
            "Homologação do aumento de capital e crédito das ações subscritas",
            "Grupamento de ações e leilão das frações remanescentes em bolsa",
        ],
    },
    CategoryTemplate {
        name: "Valores Mobiliários negociados e detidos",
        weight: 60,
        reference_date: DemoReferenceDate::Month,
        types_and_kinds: &[("Posição Consolidada", ""), ("Posição Individual - Cia, Controladas e Coligadas", "")],
        subject_templates: &["Negociações e posições dos administradores e pessoas ligadas no mês"],
    },
    CategoryTemplate {
        name: "Calendário de Eventos Corporativos",
        weight: 30,
        reference_date: DemoReferenceDate::Year,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Calendário de eventos corporativos da Companhia para o exercício de {ano}"],
    },
    CategoryTemplate {
        name: PROCEEDS_CATEGORY,
        weight: 20,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Relatório de proventos em dinheiro: {provento} por ação de emissão própria"],
    },
    CategoryTemplate {
        name: "Estatuto Social",
        weight: 20,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Estatuto Social consolidado após as alterações aprovadas em assembleia de {data}"],
    },
    CategoryTemplate {
        name: "Aviso aos Debenturistas",
        weight: 15,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &[
            "Resgate antecipado facultativo da totalidade das debêntures da {emissao} emissão",
            "Amortização extraordinária e pagamento de juros da {emissao} emissão de debêntures",
        ],
    },
    CategoryTemplate {
        name: "Escrituras e aditamentos de debêntures",
        weight: 14,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: &[("Escritura", ""), ("Aditamento", "")],
        subject_templates: &[
            "Instrumento particular de escritura da {emissao} emissão de debêntures não conversíveis em ações",
        ],
    },
    CategoryTemplate {
        name: "Comunicação sobre Transação entre Partes Relacionadas",
        weight: 12,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Contrato de mútuo celebrado com {ligada} no valor de {valor} e condições"],
    },
    CategoryTemplate {
        name: "Acordo de Acionistas",
        weight: 8,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Acordo entre os acionistas controladores sobre eleição de administradores e {motivo}"],
    },
    CategoryTemplate {
        name: "Relatório de Sustentabilidade",
        weight: 6,
        reference_date: DemoReferenceDate::Year,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Relatório de sustentabilidade e de emissões de gases em {ano_anterior}"],
    },
    CategoryTemplate {
        name: "Regimento Interno do Conselho de Administração",
        weight: 6,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Regimento interno do {orgao} aprovado em reunião de {data}"],
    },
    CategoryTemplate {
        name: "Código de Conduta",
        weight: 5,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Código de ética e conduta, revisão aprovada em {data}"],
    },
    CategoryTemplate {
        name: "Plano de Remuneração Baseado em Ações",
        weight: 5,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Plano de opções de compra de ações para administradores e empregados"],
    },
    CategoryTemplate {
        name: "Informações de Companhias em Recuperação Judicial ou Extrajudicial",
        weight: 5,
        reference_date: DemoReferenceDate::Month,
        types_and_kinds: &[("Relatório do administrador judicial", ""), ("Plano de recuperação", "")],
        subject_templates: &["Relatório mensal de atividades e de negociações com os credores"],
    },
    CategoryTemplate {
        name: "Política de Divulgação de Ato ou Fato Relevante",
        weight: 4,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Política de divulgação de informações e de preservação de sigilo"],
    },
    CategoryTemplate {
        name: "Política de Dividendos",
        weight: 4,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Política de destinação de resultados e distribuição de {provento}"],
    },
    CategoryTemplate {
        name: "Carta Anual de Governança Corporativa",
        weight: 4,
        reference_date: DemoReferenceDate::Year,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Carta anual de políticas públicas e de governança corporativa de {ano_anterior}"],
    },
    CategoryTemplate {
        name: "Comunicação sobre demandas societárias",
        weight: 4,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Ação de responsabilidade proposta por acionistas minoritários, pedidos e decisões"],
    },
    CategoryTemplate {
        name: "OPA - Edital de Oferta Pública de Ações",
        weight: 2,
        reference_date: DemoReferenceDate::Event,
        types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &["Edital de oferta pública de aquisição de ações da {alvo} para fechar capital"],
    },
];

const GOVERNING_BODIES: [&str; 5] =
    ["Conselho de Administração", "Conselho Fiscal", "Comitê de Auditoria", "Conselho Consultivo", "Comitê de Pessoas"];
const EXECUTIVE_TITLES: [&str; 6] = [
    "Diretor Presidente",
    "Diretor Financeiro",
    "Diretor de Relações com Investidores",
    "membro independente do Conselho",
    "Diretora de Operações",
    "Presidente do Conselho",
];
const SHAREHOLDER_PAYMENTS: [&str; 6] = [
    "dividendos intermediários",
    "dividendos intercalares",
    "juros sobre capital próprio",
    "dividendos obrigatórios",
    "dividendos adicionais",
    "bonificações em ações",
];
const AMENDMENT_REASONS: [&str; 5] = [
    "cancelamento de registro",
    "transferência de ações",
    "dispensa de obrigações",
    "prorrogação do vencimento",
    "adesão ao Novo Mercado",
];
const RELATED_PARTIES: [&str; 5] = [
    "sociedade controlada",
    "sociedade coligada",
    "acionista controladora",
    "subsidiária integral",
    "sociedade sob controle comum",
];
const CORPORATE_DEALS: [&str; 6] =
    ["incorporação", "cisão parcial", "fusão", "alienação de participação", "aquisição de ações", "associação"];
const CONSTRUCTION_PROJECTS: [&str; 6] = [
    "usina",
    "nova fábrica",
    "linha de transmissão",
    "estação de tratamento",
    "plataforma logística",
    "ampliação do terminal",
];
const ACQUISITION_TARGETS: [&str; 5] = ["Usina", "Mineradora", "Distribuidora", "Transportadora", "Rede de Lojas"];

/// Fills the placeholders of a template, as of the day of delivery.
pub fn render_subject(template: &str, delivered_on: NaiveDate, rng: &mut DemoRng) -> String {
    let mut subject = String::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (placeholder, after) = after.split_once('}').expect("a gap of a template is closed");
        subject.push_str(before);
        fill_placeholder(&mut subject, placeholder, delivered_on, rng);
        rest = after;
    }

    subject.push_str(rest);
    subject
}

fn fill_placeholder(subject: &mut String, placeholder: &str, delivered_on: NaiveDate, rng: &mut DemoRng) {
    match placeholder {
        "orgao" => subject.push_str(rng.pick(&GOVERNING_BODIES)),
        "cargo" => subject.push_str(rng.pick(&EXECUTIVE_TITLES)),
        "provento" => subject.push_str(rng.pick(&SHAREHOLDER_PAYMENTS)),
        "motivo" => subject.push_str(rng.pick(&AMENDMENT_REASONS)),
        "ligada" => subject.push_str(rng.pick(&RELATED_PARTIES)),
        "ano" => push_number(subject, delivered_on.year().into()),
        "ano_anterior" => push_number(subject, i64::from(delivered_on.year()) - 1),
        "operacao" => push_noun_and_place(subject, &CORPORATE_DEALS, " da ", rng),
        "obra" => push_noun_and_place(subject, &CONSTRUCTION_PROJECTS, " de ", rng),
        "alvo" => push_noun_and_place(subject, &ACQUISITION_TARGETS, " ", rng),
        "trimestre" => {
            let end = previous_quarter_end(delivered_on);
            push_number(subject, i64::from(end.month() / 3));
            subject.push_str("º trimestre de ");
            push_number(subject, end.year().into());
        }
        "emissao" => {
            push_number(subject, rng.between(1, 19));
            subject.push('ª');
        }
        "percentual" => {
            push_number(subject, rng.between(5, 24));
            subject.push(',');
            push_number(subject, rng.between(10, 99));
            subject.push('%');
        }
        "valor" => {
            subject.push_str("R$ ");
            push_number(subject, rng.between(1, 950));
            subject.push_str([".000.000,00", ".500.000,00", ".750.000,00"][rng.below(3) as usize]);
        }
        "data" => {
            let date = delivered_on - Days::new(rng.below(12));
            for number in [date.day(), date.month()] {
                if number < 10 {
                    subject.push('0');
                }
                push_number(subject, number.into());
                subject.push('/');
            }
            push_number(subject, date.year().into());
        }
        unknown => panic!("no words for the gap {unknown}"),
    }
}

/// `incorporação da Pirajuí`: a made-up proper name after the noun.
fn push_noun_and_place(subject: &mut String, nouns: &[&str], connector: &str, rng: &mut DemoRng) {
    subject.push_str(rng.pick(nouns));
    subject.push_str(connector);

    let root = rng.pick(&PLACE_ROOTS);
    let ending = rng.pick(&PLACE_ENDINGS);
    subject.push_str(&root[..1]);
    for character in root[1..].chars().chain(ending.chars()) {
        subject.extend(character.to_lowercase());
    }
}

fn push_number(subject: &mut String, number: i64) {
    use std::fmt::Write;
    write!(subject, "{number}").expect("a string takes all that is written to it");
}

/// The last day of the quarter before that of `date`.
pub fn previous_quarter_end(date: NaiveDate) -> NaiveDate {
    let first_month = date.month0() / 3 * 3 + 1;
    day_before_month(date.year(), first_month)
}

/// The last day of the month before that of `date`.
pub fn previous_month_end(date: NaiveDate) -> NaiveDate {
    day_before_month(date.year(), date.month())
}

fn day_before_month(year: i32, month: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, 1).and_then(|first| first.pred_opt()).expect("a month has a first day")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_six_to_sixteen_words() {
        let mut rng = DemoRng::new("subjects");
        let day = NaiveDate::from_ymd_opt(2026, 2, 10).unwrap();
        for template in CATEGORY_TEMPLATES.iter().flat_map(|category| category.subject_templates) {
            for _ in 0..50 {
                let subject = render_subject(template, day, &mut rng);
                let words = subject.split(' ').count();
                assert!((6..=16).contains(&words), "{words}: {subject}");
                assert!(!subject.contains(['{', '}']) && !subject.contains("  "), "{subject}");
            }
        }
    }

    #[test]
    fn subjects_refer_to_the_previous_quarter() {
        let mut rng = DemoRng::new("quarters");
        let subject = |day: &str, rng: &mut DemoRng| render_subject("{trimestre}", day.parse().unwrap(), rng);
        assert_eq!(subject("2026-02-10", &mut rng), "4º trimestre de 2025");
        assert_eq!(subject("2026-11-13", &mut rng), "3º trimestre de 2026");
    }

    #[test]
    fn place_roots_are_ascii() {
        assert!(PLACE_ROOTS.iter().all(|root| root.is_ascii()));
    }
}
